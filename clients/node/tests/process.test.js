"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const net = require("node:net");
const path = require("node:path");
const readline = require("node:readline");

const { admin, connect, empty, held, keyOf, newName, queueLength, startServer, test, until } = require("./support.js");

const FOLDER = path.join(__dirname, "..");

/** Starts a user's program, which has `semaphore` and `semaphores`, and closes neither. */
function start(t, url, name, program, options = "{ limit: 1, lease: 6000 }", responseTimeout = 10_000) {
  const code = `
    const { SemaphoreClient } = require("./index.js");
    const once = require("node:events").once;
    const sleep = require("node:timers/promises").setTimeout;
    (async () => {
      const semaphores = await SemaphoreClient.connect(${JSON.stringify(url)}, { heartbeatTimeout: 3000, responseTimeout: ${responseTimeout} });
      const semaphore = semaphores.semaphore("${name}", ${options});
      ${program}
    })();`;
  return watch(t, spawn(process.execPath, ["-e", code], { cwd: FOLDER, stdio: ["pipe", "pipe", "inherit"] }));
}

function watch(t, child) {
  t.after(() => child.kill("SIGKILL"));
  const lines = [];
  readline.createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  const exit = once(child, "exit");
  return {
    child,
    lines,
    says: (text) => until(`it says ${text}`, () => lines.some((line) => line.includes(text))),
    /** Resolves to its status, or to the signal that ended it. */
    ended: async () => {
      await until("it ends", () => child.exitCode !== null || child.signalCode !== null);
      const [status, signal] = await exit;
      return signal ?? status;
    },
  };
}

test("a program ends after its work without close", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const programs = [
    "",
    'await semaphore.use(() => console.log("done"));',
    "const permit = await semaphore.acquire(); permit.release();", // The release is not awaited.
    "const permit = await semaphore.acquire(); await semaphore.acquire({ timeout: 20 }).catch(() => {}); permit.release();",
    "const permit = await semaphore.acquire(); semaphore.acquire().then((next) => next.release()); permit.release();",
    "const other = await SemaphoreClient.connect({ url: process.env.ADDRESS, pingInterval: 50 }); await other.semaphore('x', { limit: 1 }).tryAcquire().then((permit) => permit.release());",
    "const permit = await semaphore.acquire(); if (!permit.lost.aborted) await once(permit.lost, 'abort'); if (await permit.release()) process.exit(3);",
  ];
  process.env.ADDRESS = server.url;
  for (const [index, program] of programs.entries()) {
    const options = index === programs.length - 1 ? "{ limit: 1, maxHold: 300 }" : undefined;
    assert.equal(await start(t, server.url, name, program, options).ended(), 0, program);
    assert.equal((await held(send, name)) + (await queueLength(send, name)), 0, program);
  }
});

test("a program keeps running while it waits or holds", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const holder = start(t, server.url, name, 'globalThis.permit = await semaphore.acquire(); console.log("held");');
  await holder.says("held");
  const waiter = start(t, server.url, name, 'await semaphore.use(() => {}); console.log("done");');
  await until("it waits", async () => (await queueLength(send, name)) === 1);
  const end = async () => Number(await send("ZRANGE", keyOf(name, "permits"), 0, -1, "REV", "WITHSCORES").then((all) => all[1]));
  const first = await end();
  await until("it is refreshed", async () => (await end()) > first);
  await send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); // The client connects again.
  await send("CLIENT", "KILL", "TYPE", "pubsub");
  const second = await end();
  await until("it is refreshed again, twice", async () => (await end()) > second + 3000);
  for (const { child } of [holder, waiter]) assert.equal(child.exitCode, null);
  holder.child.kill("SIGKILL");
  assert.equal(await waiter.ended(), 0);
  assert.deepEqual(waiter.lines, ["done"]);
  await empty(send, name);
});

test("a program ends after its work while Redis is unavailable", async (t) => {
  const server = await startServer(t);
  const program = start(t, server.url, newName(), 'await semaphore.use(() => {}); console.log("done"); await once(process.stdin, "data"); process.stdin.destroy();');
  await program.says("done");
  await server.kill();
  program.child.stdin.write("\n");
  assert.equal(await program.ended(), 0);
});

test("after close, every release settles, even if the server has failed", async (t) => {
  for (const signal of ["SIGKILL", "SIGSTOP"]) {
    const server = await startServer(t, ["--requirepass", "secret"]); // A stopped server confirms no password.
    const program = start(t, server.url.replace("//", "//:secret@"), newName(), `
      const permit = await semaphore.acquire();
      console.log("held");
      await once(process.stdin, "data");
      process.stdin.destroy();
      const release = (what) => permit.release().catch((error) => console.log(what, error.code));
      await release("first");
      const releases = [semaphores.close().then(() => release("after close"))];
      await new Promise(setImmediate); // The next one has a later timeout than close.
      releases.push(release("during close"));
      await Promise.all(releases);`, "{ limit: 1, lease: 30_000 }", 300);
    await program.says("held");
    await server.kill(signal);
    program.child.stdin.write("\n");
    assert.equal(await program.ended(), 0, signal);
    const lines = ["after close SEM_CLOSED", "during close SEM_CLOSED", "first SEM_UNAVAILABLE", "held"];
    assert.deepEqual([...program.lines].sort(), lines);
  }
});

test("a program runs until connecting has failed", async (t) => {
  const sockets = [];
  const silent = net.createServer((socket) => sockets.push(socket)).listen(0, "127.0.0.1");
  await once(silent, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
  const program = start(t, `redis://127.0.0.1:${silent.address().port}`, newName(), "", "{ limit: 1 }", 300);
  assert.equal(await program.ended(), 1); // The rejection is not handled.
});

test("the example releases its permit at SIGINT and SIGTERM, and ends by that signal", async (t) => {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  const semaphore = (await connect(t, server)).semaphore("printers", { limit: 1, lease: 10_000 });
  for (const signal of ["SIGINT", "SIGTERM"]) {
    const example = () => spawn(process.execPath, ["example.js"], { cwd: FOLDER, stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, REDIS_URL: server.url } });
    const first = await semaphore.acquire(); // Held until both programs wait, because each prints only 50 pages.
    const [holder, waiter] = [watch(t, example()), watch(t, example())];
    await until("both wait", async () => (await queueLength(send, "printers")) === 2);
    await first.release();
    await until("one prints", () => [holder, waiter].some(({ lines }) => lines.length > 0));
    for (const { child } of [waiter, holder]) child.kill(signal);
    assert.deepEqual(await Promise.all([holder.ended(), waiter.ended()]), [signal, signal]);
    assert.equal((await held(send, "printers")) + (await queueLength(send, "printers")), 0);
  }
});
