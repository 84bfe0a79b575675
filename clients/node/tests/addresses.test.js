"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { inspect } = require("node:util");

const { SemaphoreClient } = require("../index.js");
const { redis } = require("../lib/checks.js");
const { admin, newName, startServer, test } = require("./support.js");

const PASSWORD = "s3cret@:/%?#";
const coded = encodeURIComponent(PASSWORD);

test("a URL has the same meaning with all versions of node-redis", async () => {
  const meanings = {
    "redis://host": { socket: { host: "host" } },
    "REDIS://host:1/2": { socket: { host: "host", port: 1 }, database: 2 },
    "rediss://host/": { socket: { host: "host", tls: true } },
    "redis://[::1]:1": { socket: { host: "::1", port: 1 } },
    "rediss://[2001:db8::7]/0": { socket: { host: "2001:db8::7", tls: true }, database: 0 },
    [`redis://jobs:${coded}@host`]: { socket: { host: "host" }, username: "jobs", password: PASSWORD },
    [`redis://:${coded}@host`]: { socket: { host: "host" }, password: PASSWORD },
    "redis://jobs@host": { socket: { host: "host" }, username: "jobs" },
    "redis://jobs:@host": { socket: { host: "host" }, username: "jobs" },
    "unix:///run/redis.sock": { socket: { path: "/run/redis.sock" } },
    [`unix://jobs:${coded}@/run/a%40b?db=3`]: { socket: { path: "/run/a@b" }, username: "jobs", password: PASSWORD, database: 3 },
  };
  for (const [url, meaning] of Object.entries(meanings)) {
    const { credentialsProvider, ...found } = redis(url);
    assert.equal(credentialsProvider, undefined);
    assert.deepEqual(found, meaning, url);
  }
  const options = { url: "redis://jobs@host", password: "of the options", socket: { host: "other", noDelay: true } };
  const { username, password, socket } = redis(options);
  assert.deepEqual({ username, password, socket }, { username: "jobs", password: "of the options", socket: { host: "host", noDelay: true } });
  // With a path, node-redis would ignore the host.
  assert.deepEqual(redis({ url: "redis://host", socket: { path: "/run/redis.sock" } }).socket, { host: "host" });
  assert.deepEqual(redis({ socket: { host: "[::1]", port: 1 } }), { socket: { host: "::1", port: 1 } });
});

test("the address may be an IPv6 address or the path of a socket", async (t) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "node-test."));
  t.after(() => fs.rmSync(dir, { recursive: true }));
  const file = path.join(dir, "a b@c");
  const hasIpv6 = Object.values(os.networkInterfaces()).flat().some(({ address }) => address === "::1");
  const server = await startServer(t, ["--unixsocket", file, ...(hasIpv6 ? ["--bind", "127.0.0.1", "::1"] : [])]);
  await (await admin(t, server.url))("ACL", "SETUSER", "jobs", "on", `>${PASSWORD}`, "~*", "&*", "+@all");
  const redises = [`unix://jobs:${coded}@${file.split("/").map(encodeURIComponent).join("/")}?db=1`];
  if (hasIpv6) redises.push(`redis://jobs:${coded}@[::1]:${server.port}/1`, { socket: { host: "[::1]", port: server.port } });
  for (const redis of redises) {
    const semaphores = await SemaphoreClient.connect(redis);
    await (await semaphores.semaphore(newName(), { limit: 1 }).acquire()).release();
    await semaphores.close();
  }
});

test("an error says that an IPv6 address needs brackets", async () => {
  await assert.rejects(SemaphoreClient.connect("redis://::1:6379"), { name: "TypeError", message: /redis:\/\/\[::1\]:6379/ });
});

test("an error says that a URL has no host", async () => {
  for (const url of ["redis://", "rediss:///", "redis:///1"]) {
    await assert.rejects(SemaphoreClient.connect(url), { name: "TypeError", message: /it has no host\..*redis:\/\/localhost/ });
  }
});

/** Returns all text that a log may contain. */
const shown = (error) => inspect(error, { showHidden: true, depth: Infinity }) + JSON.stringify(error);

test("no error contains a password, in any part of the options", async (t) => {
  const server = await startServer(t);
  const sockets = [];
  const silent = net.createServer((socket) => sockets.push(socket)).listen(0, "127.0.0.1");
  await once(silent, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
  const { port } = server;
  const urls = [
    "s3cret", ":s3cret@host", "s3cret@host:6379", "localhost:s3cret", "redis:s3cret@host", "redis:/:s3cret@host",
    "http://:s3cret@host", "s3cret://host", "redis://:s3cret@host:99999", "redis://:s3cret@[::1", "redis://:s3cret@ho st",
    "redis://:s3cret%zz@host", "redis://s3cret%@host", "redis://:s3cret/more@host", "redis://:1/s3cret@host",
    "redis://user/s3cret@host", "redis://:s3cret?more@host", "redis://user?s3cret@host", "redis://user#s3cret@host",
    "redis://:1#s3cret@host", "redis://host/s3cret", "redis://host/0/s3cret", "redis://host?password=s3cret",
    "redis://host/1?s3cret", "redis://host/#s3cret", "rediss://host/#insecure-s3cret", "unix:s3cret", "unix:/p?pass=s3cret",
    "unix://:s3cret@host/p", "unix:///:s3cret@/run/redis.sock", "unix:///s3cret@/run/redis.sock", "unix:///p?password=s3cret",
    "unix:///p?db=s3cret", "unix:///p#s3cret", "unix://:s3cret%zz@/p", "unix://:s3cret@/", "unix://:s3/cret@/s3cret",
  ];
  const redises = [
    ...urls, ...urls.map((url) => ({ url })),
    { url: ["redis://:s3cret@host"] }, { url: new URL("redis://:s3cret@host") },
    { url: "redis://:s3cret@host", socket: { tls: true } }, { url: "rediss://:s3cret@host", socket: { tls: false } },
    { url: `redis://127.0.0.1:${port}`, password: ["s3cret"] }, { url: `redis://127.0.0.1:${port}`, password: { s3cret: 1 } },
    `redis://:s3cret@127.0.0.1:${port}`, `redis://s3cret@127.0.0.1:${port}`, `redis://jobs:s3cret@127.0.0.1:${port}`,
    "redis://:s3cret@127.0.0.1:1", `rediss://:s3cret@127.0.0.1:${port}`, `redis://:s3cret@127.0.0.1:${silent.address().port}`,
    "unix://:s3cret@/nowhere/redis.sock",
  ];
  for (const redis of redises) {
    const error = await SemaphoreClient.connect(redis, { responseTimeout: 200 }).then(() => undefined, (error) => error);
    assert.ok(error instanceof Error, `it connects to ${inspect(redis)}`);
    assert.doesNotMatch(shown(error), /s3cret/);
    if (urls.includes(redis.url ?? redis)) assert.match(error.message, /the URL of Redis cannot be used/);
  }
});
