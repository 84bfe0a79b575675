"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");

const { AcquireTimeout, TooHeavy } = require("../index.js");
const { newId } = require("../lib/ids.js");
const {
  admin, connect, empty, held, keyOf, newName, queued, queueLength, scriptCalls, startHolder, startServer, test, until,
} = require("./support.js");

test("two processes are served in order of arrival", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const first = await semaphore.acquire();
  const served = [];
  const wait = (who) => semaphore.acquire().then((permit) => (served.push(who), permit));

  const ours = [wait("ours 1")];
  await queued(send, name, 1);
  const theirs = [startHolder(t, name)];
  await queued(send, name, 2);
  ours.push(wait("ours 2"));
  await queued(send, name, 3);
  theirs.push(startHolder(t, name));
  await queued(send, name, 4);

  await first.release();
  const tokens = [first.fencingToken, (await ours[0]).fencingToken];
  await (await ours[0]).release();
  tokens.push(await theirs[0].held());
  assert.deepEqual(served, ["ours 1"]);
  await theirs[0].release();
  tokens.push((await ours[1]).fencingToken);
  await (await ours[1]).release();
  tokens.push(await theirs[1].held());
  await theirs[1].release();
  assert.deepEqual(tokens, [...tokens].sort((a, b) => a - b));
  await empty(send, name);
});

test("a message wakes the waiter, and no client polls", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const [holder, waiter] = [await connect(t, server), await connect(t, { ...server, heartbeatTimeout: 600_000 })];
  const permit = await holder.semaphore(name, { limit: 1 }).acquire();
  const wait = waiter.semaphore(name, { limit: 1 }).acquire();
  await queued(send, name, 1);

  // For a second, far shorter than a lease or the heartbeat timeout, no call is made.
  const before = await scriptCalls(send);
  await send("SET", "second", "", "PX", 1000);
  await until("a second has passed", async () => (await send("EXISTS", "second")) === 0);
  assert.equal(await scriptCalls(send), before);

  await permit.release();
  const next = await wait;
  assert.equal(await scriptCalls(send), before + 1);
  await next.release();
});

test("a waiter sends heartbeats, so that the server knows that it is alive", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  const semaphores = await connect(t, { heartbeatTimeout: 300 });
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  const waits = [semaphore.acquire(), semaphore.acquire()];
  await queued(send, name, 2);
  const [first] = await send("ZRANGE", `sem:{${name}}:queue`, 0, 0);
  const heardUntil = async () => Number(await send("ZSCORE", `sem:{${name}}:clients`, first.split(":")[1]));
  const start = await heardUntil();
  await until("heartbeats have extended its life three times", async () => (await heardUntil()) > start + 900);
  assert.deepEqual(await send("ZRANGE", `sem:{${name}}:queue`, 0, 0), [first]);
  await permit.release();
  for (const wait of waits) await (await wait).release();
  await empty(send, name);
});

test("many simultaneous acquires of one object: the limit is kept, in order, in few calls", async (t) => {
  const server = await startServer(t);
  const [name, send, semaphores] = [newName(), await admin(t, server.url), await connect(t, server)];
  const semaphore = semaphores.semaphore(name, { limit: 5 });
  let [inside, most] = [0, 0];
  const order = [];
  const one = (number) =>
    semaphore.use(async () => {
      order.push(number);
      inside += 1;
      most = Math.max(most, inside);
      await new Promise(setImmediate);
      inside -= 1;
    });
  await Promise.all(Array.from({ length: 1500 }, (_, number) => one(number)));
  assert.equal(most, 5);
  assert.deepEqual(order, Array.from(order.keys()));
  const calls = await scriptCalls(send);
  assert.ok(calls < 700, `${calls} calls`); // At least 300 of them are for 5 requests each.
  await empty(send, name);
});

test("all objects of a name keep one order, even if the server has lost its data", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const [holder, semaphores] = [await connect(t, server), await connect(t, { ...server, heartbeatTimeout: 900 })];
  const both = holder.semaphore(name, { limit: 2 });
  const permits = await Promise.all([both.acquire(), both.acquire()]);
  const objects = [semaphores.semaphore(name, { limit: 2 }), semaphores.semaphore(name, { limit: 2 })];
  const [order, waits] = [[], []];
  for (const number of [0, 1, 2, 3]) {
    waits.push(objects[number % 2].use(() => order.push(number)));
    await queued(send, name, number + 1);
  }
  await send("FLUSHALL");
  await Promise.all(waits);
  assert.deepEqual(order, [0, 1, 2, 3]);
  for (const permit of permits) assert.equal(await permit.release(), false);
  await empty(send, name);
});

test("while a semaphore is in use, a client has one object of its name", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const options = { limit: 1, lease: 1500 };
  const semaphore = semaphores.semaphore(name, options);
  const other = semaphores.semaphore(name, { limit: 1 });
  const inUse = { name: "RangeError", message: /in use with a limit of 1 and a lease of 1500 ms/ };
  const mustBeInUse = async () => {
    assert.equal(semaphores.semaphore(name, options), semaphore);
    assert.throws(() => semaphores.semaphore(name, { ...options, limit: 2 }), inUse);
    assert.throws(() => semaphores.semaphore(name, { limit: 1 }), inUse);
    await assert.rejects(other.acquire(), inUse);
    await assert.rejects(other.tryAcquire(), inUse);
  };
  const mustBeFree = async () => {
    assert.notEqual(semaphores.semaphore(name, options), semaphore);
    await (await other.acquire()).release();
  };

  const permit = await semaphore.acquire();
  await mustBeInUse();
  assert.equal(await semaphore.tryAcquire(), null);
  await assert.rejects(semaphore.acquire({ timeout: 50 }), AcquireTimeout);
  await mustBeInUse();
  await permit.release();
  await mustBeFree();

  const theirs = await (await connect(t)).semaphore(name, options).acquire();
  const wait = assert.rejects(semaphore.acquire({ timeout: 500 }), AcquireTimeout);
  await queued(send, name, 1);
  await mustBeInUse();
  await wait;
  await theirs.release();
  await mustBeFree();

  const lost = await semaphore.acquire();
  await send("DEL", `sem:{${name}}:permits`);
  await once(lost.lost, "abort");
  await mustBeFree();
  assert.equal(await lost.release(), false);
  await empty(send, name);
});

test("weights: heavy requests are not overtaken, and do not exceed the limit", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 4 });
  const three = await semaphore.acquire({ weight: 3 });
  const heavy = semaphore.acquire({ weight: 4 });
  await queued(send, name, 1);
  assert.equal(await semaphore.tryAcquire(), null);
  const light = semaphore.acquire();
  await queued(send, name, 2);
  await three.release();
  const permit = await heavy;
  assert.equal(permit.weight, 4);
  assert.equal(await queueLength(send, name), 1);
  await permit.release();
  await (await light).release();
  await empty(send, name);
});

test("a request that is too heavy is rejected, and the others of its call are not", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 3 });
  const all = [1, 4, 1, 5].map((weight) => semaphore.acquire({ weight }));
  await assert.rejects(all[1], (error) => error instanceof TooHeavy && error.weight === 4 && error.limit === 3);
  await assert.rejects(all[3], (error) => error instanceof TooHeavy && error.weight === 5);
  await (await all[0]).release();
  await (await all[2]).release();
  await empty(send, name);
});

test("a canceled wait leaves no request behind", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();

  const inTime = (error) => error instanceof AcquireTimeout && error.position === 1 && error.timeout === 100;
  await assert.rejects(semaphore.acquire({ timeout: 100 }), inTime);
  await queued(send, name, 0);

  const controller = new AbortController();
  const wait = semaphore.acquire({ signal: controller.signal });
  await queued(send, name, 1);
  controller.abort(new Error("not needed any more"));
  await assert.rejects(wait, /not needed any more/);
  await queued(send, name, 0);

  await assert.rejects(semaphore.acquire({ signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(await semaphore.tryAcquire(), null);
  await permit.release();
  await empty(send, name);
});

test("a timeout may be the rest of a deadline; without a rest, the request does not wait", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  for (const timeout of [20.5, 0.2, 0, -3.7]) {
    if (timeout <= 0 || timeout > 1) await (await semaphore.acquire({ timeout })).release();
    const permit = await semaphore.acquire();
    await assert.rejects(semaphore.acquire({ timeout }), (error) => error instanceof AcquireTimeout && error.timeout === timeout);
    await queued(send, name, 0);
    await permit.release();
  }
  await empty(send, name);
});

test("a lease that expires in months does not cause constant calls", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphore = (await connect(t, { ...server, heartbeatTimeout: 600_000 })).semaphore(name, { limit: 1 });
  await send("ZADD", keyOf(name, "permits"), Date.now() + 2 ** 31 + 3_600_000, newId("other", 1, 1000));
  const wait = assert.rejects(semaphore.acquire({ timeout: 500 }), AcquireTimeout);
  await queued(send, name, 1);
  const before = await scriptCalls(send);
  await wait;
  assert.ok((await scriptCalls(send)) <= before + 1); // Only the release is called.
});

test("waits may be canceled at any moment", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 3 });
  let [granted, aborted] = [0, 0];
  const one = async (number) => {
    const controller = new AbortController();
    const wait = semaphore.acquire({ signal: controller.signal });
    if (number % 4 === 1) controller.abort();
    if (number % 4 === 2) setImmediate(() => controller.abort());
    if (number % 4 === 3) setTimeout(() => controller.abort(), number % 17);
    try {
      const permit = await wait;
      granted += 1;
      await permit.release();
    } catch (error) {
      assert.equal(error.name, "AbortError");
      aborted += 1;
    }
  };
  for (let round = 0; round < 20; round += 1) {
    await Promise.all(Array.from({ length: 40 }, (_, number) => one(number)));
  }
  assert.equal(granted + aborted, 800);
  assert.ok(granted >= 200 && aborted >= 200, `${granted} granted, ${aborted} aborted`);
  await empty(send, name);
});

test("a permit of a wait that was just canceled goes to the next waiter", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  const controller = new AbortController();
  const given = semaphore.acquire({ signal: controller.signal });
  await queued(send, name, 1);
  const next = semaphore.acquire();
  await queued(send, name, 2);
  const released = permit.release();
  controller.abort();
  await assert.rejects(given, { name: "AbortError" });
  await released;
  await (await next).release();
  await empty(send, name);
});

test("the first acquire declares the limit, and reports another one", async (t) => {
  const server = await startServer(t);
  const [name, send, semaphores] = [newName(), await admin(t, server.url), await connect(t, server)];
  const before = await scriptCalls(send);
  await (await semaphores.semaphore(name, { limit: 3 }).acquire()).release();
  assert.equal(await send("HGET", keyOf(name, "state"), "declared"), "3");
  assert.equal((await scriptCalls(send)) - before, 2);
  const warned = once(process, "warning");
  await (await (await connect(t, server)).semaphore(name, { limit: 2 }).acquire()).release();
  assert.match((await warned)[0].message, /the limit 2 replaces the declared limit 3/);
  await empty(send, name);
});

test("any number of waits may share a signal", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  const warnings = [];
  const warn = (warning) => warnings.push(warning);
  process.on("warning", warn);
  const controller = new AbortController();
  const waits = Array.from({ length: 20 }, () => semaphore.acquire({ signal: controller.signal }));
  const ended = Promise.all(waits.map((wait) => assert.rejects(wait, { name: "AbortError" })));
  await queued(send, name, 20);
  controller.abort();
  await ended;
  process.off("warning", warn);
  assert.deepEqual(warnings, []);
  await permit.release();
  await empty(send, name);
});
