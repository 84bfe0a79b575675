"use strict";

const assert = require("node:assert/strict");
const { admin, connect, empty, held, newName, queued, queueLength, test } = require("./support.js");

test("close waits for permits in use, and is quiet", async (t) => {
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

test("close ends waits and gives back what they have", async (t) => {
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
