"use strict";

const { execFileSync, spawn } = require("node:child_process");
const { randomUUID } = require("node:crypto");
const { once } = require("node:events");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const readline = require("node:readline");
const tls = require("node:tls");
const nodeTest = require("node:test");
const { setTimeout: sleep } = require("node:timers/promises");
const { createClient } = require("redis");

const { SemaphoreClient } = require("../index.js");
const manifest = require("../lib/manifest.json");

const URL = process.env.REDIS_URL ?? "redis://127.0.0.1";
const SERVER = process.env.REDIS_SERVER_BIN ?? "redis-server";

/** Adds a timeout, so that a test that waits forever ends, too. */
const test = (what, run) => nodeTest.test(what, { timeout: 240_000 }, run);

const newName = () => `node-test-${randomUUID()}`;

/** Waits until the condition returns a true value, and returns that value. */
async function until(what, condition, patience = 60_000) {
  for (const deadline = performance.now() + patience; ; await sleep(5)) {
    const answer = await condition();
    if (answer) return answer;
    if (performance.now() > deadline) throw new Error(`not within ${patience} ms: ${what}`);
  }
}

/** Opens a plain connection, to inspect the server. */
async function admin(t, url = URL) {
  const socket = { reconnectStrategy: () => new Error("this connection does not reconnect") };
  const client = createClient({ url, socket, RESP: 2 }).on("error", () => {}); // Calls report it.
  await client.connect();
  t.after(() => client.isOpen && (client.destroy ? client.destroy() : client.disconnect()));
  return (...words) => client.sendCommand(words.map(String));
}

async function connect(t, { url = URL, heartbeatTimeout, responseTimeout, outageTolerance } = {}) {
  const semaphores = await SemaphoreClient.connect(url, { heartbeatTimeout, responseTimeout, outageTolerance });
  t.after(() => semaphores.close());
  return semaphores;
}

const keyOf = (name, key) => `sem:{${name}}:${key}`;
const queueLength = (send, name) => send("ZCARD", keyOf(name, "queue"));

/** Waits until this many requests are queued. */
const queued = (send, name, count) =>
  until(`${count} in the queue`, async () => (await queueLength(send, name)) === count);

/** Returns the number of leases on the server. */
const held = (send, name) => send("ZCOUNT", keyOf(name, "permits"), "(0", "+inf");

/** Waits until no permit is held and no request is queued. */
const empty = (send, name) =>
  until(`nothing left of ${name}`, async () => (await held(send, name)) + (await queueLength(send, name)) === 0);

/** An argument of the release script, in the text of a call. */
const isRelease = (text) => text.includes("\r\nreturn\r\n");

/** Whether a call subscribes. Comments in the source of a script may contain the word, too. */
const isSubscribe = (text) => /\r\nsubscribe\r\n/i.test(text);

/** Sends a request that no client of these tests has sent. */
function callAcquire(send, name, id) {
  const { source } = manifest.scripts.find((script) => script.name === "acquire");
  const keys = ["permits", "queue", "clients", "state", "order", "turns"].map((key) => keyOf(name, key));
  return send("EVAL", source, keys.length, ...keys, "declare", 1, 15_000, id, "wait");
}

/** Makes the server reject writes, because its data cannot be saved. */
async function failToSave(send) {
  const [, dir] = await send("CONFIG", "GET", "dir");
  fs.mkdirSync(path.join(dir, "dump.rdb/file"), { recursive: true });
  await send("CONFIG", "SET", "save", "3600 1");
  await send("BGSAVE");
  await until("saving has failed", async () => /rdb_last_bgsave_status:err/.test(await send("INFO", "persistence")));
}

/** Returns the number of scripts that the server has run. */
async function scriptCalls(send) {
  const stats = await send("INFO", "commandstats");
  return [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].reduce((sum, [, calls]) => sum + Number(calls), 0);
}

const exited = (child) => child.exitCode !== null || child.signalCode !== null;

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** Starts a server for one test, which may stop and kill it. */
async function startServer(t, options = [], files = []) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "node-test."));
  const port = await freePort();
  const server = { url: `redis://127.0.0.1:${port}`, port };
  server.start = async () => {
    const isSentinel = options.includes("--sentinel");
    const data = isSentinel ? [] : ["--save", "", "--appendonly", "no"];
    const args = [...files, "--port", port, "--bind", "127.0.0.1", "--dir", dir, ...data, ...options];
    server.child = spawn(SERVER, args.map(String), { stdio: "ignore" });
    await until("the server accepts connections", async () => {
      const socket = net.connect(port, "127.0.0.1");
      const isUp = await once(socket, "connect").then(() => true, () => false);
      socket.destroy();
      return isUp;
    });
  };
  server.kill = async (signal = "SIGKILL") => {
    server.child.kill(signal);
    if (signal === "SIGKILL" && !exited(server.child)) await once(server.child, "exit");
  };
  await server.start();
  t.after(async () => {
    await server.kill();
    fs.rmSync(dir, { recursive: true });
  });
  return server;
}

/** Starts a process that acquires a permit, reports it, and releases it on request. */
function startHolder(t, name, { limit = 1, lease = 30_000, heartbeatTimeout = 15_000, group = "" } = {}) {
  const file = path.join(__dirname, "holder.js");
  const child = spawn(process.execPath, [file, name, limit, lease, heartbeatTimeout, group].map(String), {
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    child,
    /** Resolves to its token when it holds the permit. */
    held: async () => Number((await lines.next()).value.split(" ")[1]),
    release: async () => {
      child.stdin.end("\n");
      if (!exited(child)) await once(child, "exit");
    },
    kill: async () => {
      child.kill("SIGKILL");
      if (!exited(child)) await once(child, "exit");
    },
  };
}

/**
 * Starts a server that is not Redis, and sends its greeting, and then `reply(command)` for each command. With a name such as
 * "DNS:other.test", it uses TLS, with a certificate of this name, which `ca` contains.
 */
async function startPeer(t, reply, name) {
  const peer = { greeting: "" };
  let listen = net.createServer;
  if (name) {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "node-test."));
    t.after(() => fs.rmSync(dir, { recursive: true }));
    const [cert, key] = ["cert", "key"].map((file) => path.join(dir, file));
    const words = ["-addext", `subjectAltName=${name}`, "-keyout", key, "-out", cert];
    execFileSync("openssl", [..."req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test".split(" "), ...words], { stdio: "ignore" });
    peer.ca = fs.readFileSync(cert);
    listen = (serve) => tls.createServer({ cert: peer.ca, key: fs.readFileSync(key) }, serve);
  }
  const sockets = new Set();
  const server = listen((socket) => {
    sockets.add(socket);
    if (peer.greeting) socket.write(peer.greeting);
    socket.on("error", () => {}).on("data", (data) => {
      for (const command of data.toString().split(/(?=\*\d+\r\n\$)/)) socket.write(reply(command));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  peer.port = server.address().port;
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return peer;
}

/** Starts a proxy, which can silence a connection, close it after a request, or delay a reply. */
async function startProxy(t, target) {
  const links = new Set();
  const proxy = { links, cuts: 0, onRequest: () => "pass" };
  const server = net.createServer((client) => {
    const upstream = net.connect(target.port, "127.0.0.1");
    const link = { client, upstream, isSilent: false, isListener: false };
    const end = () => {
      client.destroy();
      upstream.destroy();
      links.delete(link);
    };
    links.add(link);
    for (const socket of [client, upstream]) socket.on("error", end).on("close", end);
    client.on("data", (data) => {
      if (isSubscribe(data.toString("latin1"))) link.isListener = true;
      const fate = proxy.onRequest(data.toString("latin1"));
      if (fate === "cut") return end();
      if (fate === "lose reply") {
        proxy.cuts += 1;
        link.isSilent = true;
        upstream.once("data", end); // The server has run the call, but the client gets no reply.
      }
      if (fate === "hold reply") upstream.pause(); // The test resumes it.
      upstream.write(data);
    });
    upstream.on("data", (data) => link.isSilent || client.write(data));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  proxy.url = `redis://127.0.0.1:${server.address().port}`;
  t.after(() => {
    for (const { client } of links) client.destroy();
    server.close();
  });
  return proxy;
}

module.exports = {
  test, newName, isRelease, isSubscribe, until, admin, connect, callAcquire, keyOf, queued, queueLength, held, empty, failToSave, scriptCalls,
  startServer, startHolder, startPeer, startProxy,
};
