"use strict";

const assert = require("node:assert/strict");
const { admin, connect, empty, held, newName, queued, queueLength, startServer, test } = require("./support.js");

test("close waits for held permits, without a warning", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const warnings = [];
  const warn = (warning) => warnings.push(warning);
  process.on("warning", warn);
  const semaphore = semaphores.semaphore(name, { limit: 2 });
  let [goOn, isClosed] = [undefined, false];
  const goingOn = new Promise((resolve) => (goOn = resolve));
  const work = semaphore.use(() => goingOn);
  const permit = await semaphore.acquire();
  const wait = assert.rejects(semaphore.acquire(), { name: "Closed" });
  await queued(send, name, 1);
  const closing = semaphores.close().then(() => (isClosed = true));
  await wait;
  await queued(send, name, 0);
  assert.equal(await permit.release(), true);
  assert.equal(isClosed, false);
  assert.equal(await held(send, name), 1);
  goOn("done");
  assert.equal(await work, "done");
  await closing;
  assert.equal(await held(send, name), 0);
  process.off("warning", warn);
  assert.deepEqual(warnings, []);
});

test("close waits no longer than a lease", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const permit = await semaphores.semaphore(name, { limit: 1, lease: 900 }).acquire();
  await semaphores.close();
  assert.ok(permit.isLost);
  assert.equal(await permit.release(), false);
  assert.equal(await held(send, name), 0);
});

/** Far below the deadline of the test, and far above the delays of a busy machine. */
const LATE = 20_000;

test("close ends at most a lease and two response timeouts later, even if the server has failed", async (t) => {
  for (const signal of ["SIGKILL", "SIGSTOP"]) {
    const server = await startServer(t);
    const semaphores = await connect(t, { url: server.url, responseTimeout: 1000 });
    const permit = await semaphores.semaphore(newName(), { limit: 1, lease: 1500 }).acquire();
    await server.kill(signal);
    const start = performance.now();
    await semaphores.close();
    assert.ok(performance.now() - start < 1500 + 2 * 300 + LATE);
    assert.ok(permit.isLost);
  }
});

test("close ends waits and releases their permits", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const [ours, theirs] = [await connect(t), await connect(t)];
  const permit = await theirs.semaphore(name, { limit: 1 }).acquire();
  const semaphore = ours.semaphore(name, { limit: 1 });
  const wait = assert.rejects(semaphore.acquire(), { name: "Closed" });
  await queued(send, name, 1);
  const closing = ours.close();
  await assert.rejects(semaphore.acquire(), { name: "Closed" });
  await closing;
  await wait;
  assert.equal(await queueLength(send, name), 0);
  await assert.rejects(semaphore.acquire(), { name: "Closed" });
  await permit.release();
  await empty(send, name);
});
