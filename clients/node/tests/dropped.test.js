"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const v8 = require("node:v8");
const vm = require("node:vm");

const { PermitLost } = require("../index.js");
const { admin, connect, empty, held, newName, queued, test, until } = require("./support.js");

v8.setFlagsFromString("--expose-gc");
const gc = vm.runInNewContext("gc");

/** Acquires permits without keeping them. */
async function dropAfter(acquire, keep = () => {}) {
  const permit = await acquire();
  keep(permit);
  return permit.id;
}

/** Waits until no lease is left. Returns the warnings until then. */
async function collected(send, name) {
  const warnings = [];
  const note = (warning) => warnings.push(warning);
  process.on("warning", note);
  await until("it is released", async () => {
    gc();
    return (await held(send, name)) === 0 && warnings.length > 0;
  });
  process.off("warning", note);
  return warnings;
}

test("a dropped permit is released, with a warning", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1, lease: 60_000 });
  const ways = [
    () => semaphore.acquire(),
    () => semaphore.tryAcquire(),
    async () => { // A message grants the permit.
      const permit = await semaphore.acquire();
      const wait = semaphore.acquire();
      await queued(send, name, 1);
      await permit.release();
      return wait;
    },
  ];
  for (const acquire of ways) {
    let signal;
    const id = await dropAfter(acquire, (permit) => (signal = permit.lost));
    const [warning] = await collected(send, name);
    assert.ok(warning instanceof PermitLost && warning.id === id, warning);
    assert.match(warning.message, /dropped it without release/);
    assert.equal(signal.reason, warning, "code that has only the signal finds out");
  }
  await empty(send, name);
});

test("a permit that the program keeps, has released or has lost does not count as dropped", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 4, lease: 60_000 });
  const warnings = [];
  const note = (warning) => warnings.push(warning);
  process.on("warning", note);
  const permit = await semaphore.acquire();
  // A listener that refers to the permit keeps it, too.
  let reference;
  await dropAfter(() => semaphore.acquire(), (listened) => {
    listened.lost.addEventListener("abort", () => listened.release());
    reference = new WeakRef(listened);
  });
  let goOn;
  const used = semaphore.use(() => new Promise((resolve) => (goOn = resolve)));
  await until("all hold", async () => (await held(send, name)) === 3);
  await dropAfter(async () => {
    const released = await semaphore.acquire();
    await released.release();
    return released;
  });
  // If one object is collected, the others could have been collected, too.
  let isCollected = false;
  const registry = new FinalizationRegistry(() => (isCollected = true));
  registry.register(new Array(10));
  await until("something is collected", async () => (gc(), isCollected));
  for (let round = 0; round < 10; round += 1) {
    gc();
    await new Promise(setImmediate);
  }
  assert.equal(await held(send, name), 3);
  assert.equal(await permit.release(), true);
  assert.equal(await reference.deref().release(), true);
  goOn();
  await used;
  process.off("warning", note);
  assert.deepEqual(warnings, []);
  await empty(send, name);
});

test("maxHold limits how long a permit is held, however often it is refreshed", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  for (const [lease, maxHold] of [[600, 1500], [60_000, 300]]) {
    const semaphore = semaphores.semaphore(name, { limit: 1, lease, maxHold });
    const started = performance.now();
    const permit = await semaphore.acquire();
    assert.ok(permit.expiresIn <= Math.min(lease, maxHold));
    await once(permit.lost, "abort");
    assert.ok(performance.now() - started >= maxHold - 2, "not before");
    assert.match(permit.lost.reason.message, new RegExp(`held for ${maxHold} ms, its maxHold`));
    assert.equal(permit.isLost, true);
    await empty(send, name); // Immediately, and not when its lease expires.
    assert.equal(await permit.release(), false);
  }
  for (const maxHold of [0, -1, 1.5, NaN, "5", null]) {
    assert.throws(() => semaphores.semaphore(name, { limit: 1, maxHold }), RangeError);
  }
  const semaphore = semaphores.semaphore(name, { limit: 1, maxHold: 60_000 });
  const permit = await semaphore.acquire();
  assert.throws(() => semaphores.semaphore(name, { limit: 1 }), /in use with .* held for at most 60000 ms, not with a limit/);
  await permit.release();
});

test("use ends the work at maxHold, and reports it", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1, maxHold: 200 });
  await assert.rejects(semaphore.use((permit) => once(permit.lost, "abort")), { code: "SEM_LOST", message: /maxHold/ });
  await empty(send, name);
});
