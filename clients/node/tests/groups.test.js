"use strict";

const assert = require("node:assert/strict");

const { AcquireTimeout } = require("../index.js");
const { leaseOf, newId } = require("../lib/ids.js");
const { admin, callAcquire, connect, empty, held, keyOf, newName, queued, startHolder, test, until } = require("./support.js");

test("waiting groups are granted permits in proportion to their shares", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const [first, second] = [await connect(t), await connect(t)].map((client) => client.semaphore(name, { limit: 1 }));
  // Requests without a group form a group with a share of 1.
  for (const group of ["a", undefined]) {
    let permit = await first.acquire();
    const waits = new Map();
    const queue = async (who, semaphore, options) => {
      const id = waits.size;
      waits.set(id, semaphore.acquire(options).then((granted) => ({ id, who, granted })));
      await queued(send, name, waits.size);
    };
    for (let i = 0; i < 4; i += 1) await queue("a", first, { group });
    for (let i = 0; i < 12; i += 1) await queue("b", second, { group: { name: "b", share: 3 } });
    let order = "";
    while (waits.size > 0) {
      await permit.release();
      const { id, who, granted } = await Promise.race(waits.values());
      waits.delete(id);
      order += who;
      permit = granted;
    }
    await permit.release();
    // While both groups wait, the weights divided by the shares differ by at most the sum of 1 / share.
    const both = Math.min(order.lastIndexOf("a"), order.lastIndexOf("b")) + 1;
    for (let end = 0; end <= both; end += 1) {
      const [a, b] = ["a", "b"].map((who) => order.slice(0, end).split(who).length - 1);
      assert.ok(Math.abs(a - b / 3) < 1 + 1 / 3 + 1e-9, order);
    }
    await empty(send, name);
  }
});

test("a group at its cap waits and delays no other group", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const semaphore = (await connect(t)).semaphore(name, { limit: 3, groupCap: 1 });
  const permit = await semaphore.acquire({ group: "a" });
  await assert.rejects(semaphore.acquire({ group: "a", timeout: 1 }), AcquireTimeout);
  assert.equal(await semaphore.tryAcquire({ group: "a" }), null);
  const wait = semaphore.acquire({ group: "a" });
  await queued(send, name, 1);
  const others = [await semaphore.tryAcquire({ group: "b" }), await semaphore.tryAcquire()];
  assert.equal(await held(send, name), 3);
  await queued(send, name, 1);
  for (const other of others) await other.release();
  await permit.release();
  const next = await wait;
  await (await semaphore.tryAcquire({ group: { name: "a", cap: 2 } })).release(); // A larger cap applies to new requests.
  await next.release();
  await empty(send, name);
});

test("processes share a cap", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const semaphore = (await connect(t)).semaphore(name, { limit: 3, groupCap: 1 });
  const holder = startHolder(t, name, { limit: 3, group: "a" });
  await holder.held();
  assert.equal(await semaphore.tryAcquire({ group: "a" }), null);
  await (await semaphore.tryAcquire({ group: "b" })).release();
  const wait = semaphore.acquire({ group: "a" });
  await queued(send, name, 1);
  await holder.release();
  await (await wait).release();
  await empty(send, name);
});

test("an ID has the group with its share and cap", async (t) => {
  const [name, semaphores] = [newName(), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 9, groupShare: 2, groupCap: 7 });
  assert.deepEqual([semaphore.groupShare, semaphore.groupCap], [2, 7]);
  const long = "x".repeat(64);
  for (const [group, part] of [
    ["tenant-7", "tenant-7,2,7"],
    [{ name: "A.z_0-", share: 3 }, "A.z_0-,3,7"],
    [{ name: "a", share: undefined, cap: 5 }, "a,2,5"],
    [{ name: long, share: 1000, cap: 2 ** 32 - 1 }, `${long},1000,4294967295`],
  ]) {
    await semaphore.use(({ id }) => assert.deepEqual(id.split(":").slice(4, -1), [part]), { weight: 4, group });
  }
  await semaphore.use(({ id }) => assert.equal(id.split(":").length, 5));
  const plain = semaphores.semaphore(newName(), { limit: 9 });
  await plain.use(({ id }) => assert.equal(id.split(":")[4], "a,1,0"), { group: "a" });
});

test("wrong groups are rejected before the call", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 9 });
  const names = 'must be 1 to 64 letters, digits, ".", "_" or "-", got ';
  for (const [group, error, why] of [
    ["", RangeError, `${names}''`],
    ["x".repeat(65), RangeError, names],
    ["a:b", RangeError, `${names}'a:b'`],
    ["a,1,1", RangeError, `${names}'a,1,1'`],
    ["a\n", RangeError, names],
    ["é", RangeError, names],
    [{ share: 3 }, RangeError, `${names}undefined`],
    ["redis://:s3cret@h", RangeError, `${names}a text with a URL`],
    [{ name: "a", share: 0 }, RangeError, "the share of a group must be an integer from 1 to 1000, got 0"],
    [{ name: "a", share: 1001 }, RangeError, "from 1 to 1000, got 1001"],
    [{ name: "a", cap: 1 }, RangeError, "the cap of a group for the weight 2 must be an integer from 2 to 4294967295, got 1"],
    [{ name: "a", cap: 2 ** 32 }, RangeError, "got 4294967296"],
    [{ name: "a", limit: 1 }, TypeError, "group: there is no limit, but name, share, cap"],
    [["a"], TypeError, "group must be a plain object, got Array"],
    [7, TypeError, "group must be a string or an object with name, share and cap, got 7"],
    [null, TypeError, "got null"],
  ]) {
    const options = { weight: 2, group };
    for (const call of [semaphore.acquire(options), semaphore.tryAcquire(options), semaphore.use(() => {}, options)]) {
      await assert.rejects(call, (found) => found instanceof error && found.message.includes(why), why);
    }
  }
  for (const [options, message] of [
    [{ groupShare: 0 }, /^groupShare must be an integer from 1 to 1000, got 0$/],
    [{ groupCap: 0 }, /^groupCap must be an integer from 1 to 4294967295, got 0$/],
  ]) {
    assert.throws(() => semaphores.semaphore(newName(), { limit: 1, ...options }), { name: "RangeError", message });
  }
  const capped = semaphores.semaphore(name, { limit: 9, groupCap: 1 });
  await assert.rejects(capped.acquire({ weight: 2, group: "a" }), { name: "RangeError", message: /from 2 to .*, got 1$/ });
  assert.equal(await send("EXISTS", keyOf(name, "state")), 0); // Nothing was sent.
});

test("while a semaphore is in use, its groups have one share and cap", async (t) => {
  const [name, semaphores] = [newName(), await connect(t)];
  const [other, another] = [{ limit: 2, groupShare: 3 }, { limit: 2, groupCap: 4 }];
  const early = semaphores.semaphore(name, other);
  await semaphores.semaphore(name, another).use(async () => {
    assert.throws(() => semaphores.semaphore(name, other), {
      message: /is in use with a limit of 2 .*, a group cap of 4, not with .*, a group share of 3$/,
    });
    await assert.rejects(early.acquire(), RangeError);
    await semaphores.semaphore(name, another).use(() => {}, { group: "a" });
  });
});

test("clients without groups use a semaphore that has groups", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const clients = [await connect(t), await connect(t), await connect(t)];
  const [early, late, grouped] = clients.map((client) => client.semaphore(name, { limit: 2 }));
  const permit = await early.acquire();
  const other = await grouped.acquire({ group: "a" });
  const wait = early.acquire(); // The call is repeated with all keys.
  await queued(send, name, 1);
  assert.equal(await late.tryAcquire(), null);
  assert.equal(await other.release(), true);
  assert.equal(await permit.release(), true);
  assert.equal(await (await wait).release(), true);
  await empty(send, name);
});

test("a permit of a client without groups is refreshed and released", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const clients = [await connect(t), await connect(t)];
  const [plain, grouped] = clients.map((client) => client.semaphore(name, { limit: 2, lease: 3000 }));
  const [permit, other] = [await plain.acquire(), await grouped.acquire({ group: "a" })];
  const end = async () => Number(await send("ZSCORE", keyOf(name, "permits"), permit.id));
  const start = await end();
  await until("it is refreshed", async () => (await end()) > start);
  assert.equal(await permit.release(), true);
  assert.equal(await other.release(), true);
  await empty(send, name);
});

test("the first request with a group comes before a later release", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const semaphore = (await connect(t)).semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  const before = semaphore.tryAcquire({ group: "a" });
  permit.release();
  const after = semaphore.tryAcquire({ group: "a" });
  assert.equal(await before, null);
  await (await after).release();
  await empty(send, name);
});

test("a permit of a group without a waiter is released", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const permit = await (await connect(t)).semaphore(name, { limit: 1 }).acquire({ group: "a" });
  // The request reaches the server as if its release had overtaken it.
  const id = newId(permit.id.split(":")[1], 1, 30_000, { name: "a", share: 1 });
  assert.equal((await callAcquire(send, name, id))[3], 2);
  await permit.release();
  await empty(send, name);
});

test("the lease of an ID", () => {
  for (const [group, lease] of [
    ["", 30_000], ["a,1,0:", 30_000], ["a,1000,4294967295:", 30_000], [`${"x".repeat(64)},1,2:`, 30_000],
    [":"], ["a:"], ["a,1:"], [",1,0:"], ["a,0,0:"], ["a,1001,0:"], ["a,1,1:"], ["a,1,4294967296:"], ["a,01,0:"],
    ["a,1,02:"], [`${"x".repeat(65)},1,0:`], ["é,1,0:"], ["a,1,0:b,1,0:"],
  ]) {
    assert.equal(leaseOf("c", `P:c:2:30000:${group}${"n".repeat(16)}`), lease, group);
  }
});
