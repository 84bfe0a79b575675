"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { PermitLost, Unavailable } = require("../index.js");
const { Lease } = require("../lib/lease.js");
const { AutoRefresh } = require("../lib/auto-refresh.js");
const {
  admin, connect, empty, held, isRelease, keyOf, newName, queued, scriptCalls, startHolder, startProxy, startServer, test, until,
} = require("./support.js");

/** The largest delay of a timer on a busy machine. */
const SLACK = 2000;

test("a permit is held far beyond its lease, and has a token", async (t) => {
  const [name, send, semaphores, other] = [newName(), await admin(t), await connect(t), await connect(t)];
  const lease = 1500;
  const permit = await semaphores.semaphore(name, { limit: 1, lease }).acquire();
  assert.ok(Number.isSafeInteger(permit.fencingToken) && permit.fencingToken > 0);
  assert.ok(permit.expiresIn > 0 && permit.expiresIn < lease);
  const end = async () => Number(await send("ZSCORE", keyOf(name, "permits"), permit.id));
  const first = await end();
  const rival = other.semaphore(name, { limit: 1, lease });
  await until("two leases more", async () => {
    assert.equal(await rival.tryAcquire(), null);
    assert.ok(!permit.isLost && !permit.lost.aborted);
    return (await end()) > first + 2 * lease;
  });
  const released = permit.release();
  assert.equal(permit.expiresIn, 0);
  assert.equal(await released, true);
  assert.deepEqual([permit.isLost, permit.expiresIn], [false, 0]);
  const next = await rival.acquire();
  assert.ok(next.fencingToken > permit.fencingToken);
  await next.release();
  await empty(send, name);
});

test("one call refreshes all permits of a semaphore", async (t) => {
  const server = await startServer(t);
  const [name, send, semaphores] = [newName(), await admin(t, server.url), await connect(t, server)];
  const semaphore = semaphores.semaphore(name, { limit: 30, lease: 9000 });
  const permits = await Promise.all(Array.from({ length: 30 }, () => semaphore.acquire()));
  const before = await scriptCalls(send);
  const ends = () => send("ZRANGEBYSCORE", keyOf(name, "permits"), "(0", "+inf", "WITHSCORES", "LIMIT", 0, 1);
  const [, first] = await ends();
  await until("a lease more", async () => Number((await ends())[1]) > Number(first) + 9000);
  const calls = (await scriptCalls(send)) - before;
  assert.ok(calls >= 3 && calls <= 5, `${calls} calls`); // One call in 3 s.
  for (const permit of permits) assert.ok(!permit.isLost);
  await Promise.all(permits.map((permit) => permit.release()));
  await empty(send, name);
});

test("a permit is refreshed before it is returned if half of its lease is over", async (t) => {
  const server = await startServer(t);
  const [name, proxy] = [newName(), await startProxy(t, server)];
  const lease = 1500;
  const semaphore = (await connect(t, { url: proxy.url })).semaphore(name, { limit: 1, lease });
  await (await semaphore.acquire()).release();
  let calls = 0;
  proxy.onRequest = (text) => {
    if (text.includes("EVAL")) calls += 1;
    // This process is blocked, and calls the server only afterwards.
    for (const end = performance.now() + lease / 2; calls === 1 && performance.now() < end; );
    return "pass";
  };
  const permit = await semaphore.acquire();
  assert.ok(calls >= 2); // More if a busy machine was late again.
  assert.equal(await permit.release(), true);
});

test("the first refresh is due after a third of the lease, however late the grant arrived", async () => {
  const hour = 3_600_000;
  let calls = 0;
  const refresh = async () => {
    calls += 1;
    return { reply: [0, -1, 1, 1], sent: performance.now() };
  };
  const autoRefresh = new AutoRefresh(refresh, hour);
  autoRefresh.add(new Lease("name", "young", performance.now(), hour));
  autoRefresh.add(new Lease("name", "old", performance.now() - 0.4 * hour, hour));
  await until("it is refreshed", () => calls === 1);
  autoRefresh.stop();
});

test("a permit whose key was deleted is lost at the next refresh", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const permit = await semaphores.semaphore(name, { limit: 1, lease: 6000 }).acquire();
  await send("DEL", keyOf(name, "permits"));
  const started = performance.now();
  await once(permit.lost, "abort");
  assert.ok(performance.now() - started < 2000 + SLACK);
  assert.ok(permit.lost.reason instanceof PermitLost);
  assert.equal(permit.isLost, true);
  assert.equal(permit.expiresIn, 0);
  assert.equal(await permit.release(), false);
});

for (const [how, signal] of [["hangs", "SIGSTOP"], ["has died", "SIGKILL"]]) {
  test(`a permit is said to be lost at its deadline when the server ${how}`, async (t) => {
    const server = await startServer(t);
    const [name, send, semaphores] = [newName(), await admin(t, server.url), await connect(t, server)];
    const lease = 900;
    const permit = await semaphores.semaphore(name, { limit: 1, lease }).acquire();
    const end = async () => Number(await send("ZSCORE", keyOf(name, "permits"), permit.id));
    const first = await end();
    await until("it was refreshed", async () => (await end()) > first);
    const stopped = performance.now();
    await server.kill(signal);
    await once(permit.lost, "abort");
    const passed = performance.now() - stopped;
    assert.ok(passed > lease / 2 && passed < lease + SLACK, `${passed} ms`);
    assert.ok(permit.lost.reason instanceof PermitLost);
    assert.ok(permit.lost.reason.cause, "it says why refreshing failed");
    if (signal === "SIGSTOP") server.child.kill("SIGCONT");
    else await server.start();
    assert.equal(await permit.release(), false);
    const other = await connect(t, server);
    await (await other.semaphore(name, { limit: 1, lease }).acquire({ timeout: 5000 })).release();
  });
}

test("isLost is exact while the event loop is too busy to report a loss", async (t) => {
  const [name, semaphores] = [newName(), await connect(t)];
  const lease = 200;
  const permit = await semaphores.semaphore(name, { limit: 1, lease }).acquire();
  assert.equal(permit.isLost, false);
  for (const end = performance.now() + lease; performance.now() < end; );
  assert.equal(permit.isLost, true);
  assert.equal(await permit.release(), false);
});

/** From now on, all requests except releases arrive, and all replies are lost. */
function loseReplies(proxy) {
  proxy.onRequest = (text) => {
    for (const link of proxy.links) link.isSilent = !link.isListener;
    return isRelease(text) ? "cut" : "pass";
  };
}

/** Waits until the server has refreshed the lease. */
async function refresh(end) {
  const first = await end();
  return until("it was refreshed", async () => {
    const now = await end();
    return now > first && now;
  });
}

test("a permit that is lost during a refresh without a reply is released", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const semaphores = await connect(t, { url: proxy.url, responseTimeout: 500 });
  const permit = await semaphores.semaphore(name, { limit: 1, lease: 1500 }).acquire();
  const end = async () => Number(await send("ZSCORE", keyOf(name, "permits"), permit.id));
  const refreshed = await refresh(end); // Now the server knows the script.
  loseReplies(proxy);
  await once(permit.lost, "abort");
  assert.ok((await end()) > refreshed, "the server has refreshed it");
  assert.equal(await permit.release(), false);
  assert.equal(await held(send, name), 1, "it waits for no server that is away");
  proxy.onRequest = () => "pass";
  await semaphores.close();
  assert.equal(await held(send, name), 0);
});

test("a release is retried as long as a refresh without a reply may hold the permit", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const semaphores = await connect(t, { url: proxy.url, responseTimeout: 500 });
  const lease = 1500;
  const permit = await semaphores.semaphore(name, { limit: 1, lease }).acquire();
  const end = async () => Number(await send("ZSCORE", keyOf(name, "permits"), permit.id));
  await refresh(end);
  const refreshed = performance.now();
  loseReplies(proxy);
  await refresh(end);
  proxy.onRequest = () => "cut";
  await assert.rejects(permit.release(), Unavailable);
  await until("the lease has expired here", () => performance.now() > refreshed + lease + 100);
  assert.equal(await held(send, name), 1);
  proxy.onRequest = () => "pass";
  await empty(send, name);
});

test("a lease that has expired here is not refreshed, even if the server still has it", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const [holder, waiter] = [await connect(t, server), await connect(t, server)];
  const lease = 2000;
  const first = await holder.semaphore(name, { limit: 1 }).acquire();
  const asked = performance.now();
  const wait = waiter.semaphore(name, { limit: 1, lease }).acquire();
  // After a grant message, a lease counts from the reply "queued" here, and from the grant on the server.
  await until("a quarter of the lease has passed", () => performance.now() > asked + lease / 4);
  await first.release();
  const permit = await wait;
  const before = await scriptCalls(send);
  while (!permit.isLost);
  assert.equal(permit.lost.aborted, false);
  await once(permit.lost, "abort");
  await empty(send, name);
  assert.equal(await scriptCalls(send), before + 1, "the release");
  assert.equal(await permit.release(), false);
});

test("a killed process loses its permit when its lease expires, and its request with its connection", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const lease = 3000;
  const holder = startHolder(t, name, { lease });
  await holder.held();
  const waiter = startHolder(t, name, { lease });
  await queued(send, name, 1);
  const wait = semaphores.semaphore(name, { limit: 1, lease }).acquire();
  await queued(send, name, 2);
  await waiter.kill();
  await holder.kill();
  const killed = performance.now();
  const permit = await wait;
  const passed = performance.now() - killed;
  assert.ok(passed > lease / 2 && passed < lease + SLACK, `${passed} ms`);
  await permit.release();
  await empty(send, name);
});

test("use releases the permit after any end of the callback", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 2, lease: 1500 });
  assert.equal(await semaphore.use((permit) => permit.weight + 1, { weight: 2 }), 3);
  await empty(send, name);
  const failure = new Error("the work failed");
  await assert.rejects(semaphore.use(() => Promise.reject(failure)), failure);
  await empty(send, name);
  const lost = semaphore.use(async (permit) => {
    await send("DEL", keyOf(name, "permits"));
    await once(permit.lost, "abort");
  });
  await assert.rejects(lost, PermitLost);
  // The loss is detected only at the release.
  await assert.rejects(semaphore.use(() => send("DEL", keyOf(name, "permits"))), PermitLost);
});

test("a permit can be disposed of, and released twice", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  // Old versions of Node.js 18 do not have the symbol.
  await (Symbol.asyncDispose ? permit[Symbol.asyncDispose]() : permit.release());
  assert.equal(await permit.release(), true);
  assert.equal(permit.lost.aborted, false);
  await empty(send, name);
});
