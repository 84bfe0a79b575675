"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { Unavailable } = require("../index.js");
const manifest = require("../lib/manifest.json");
const {
  admin, callAcquire, connect, empty, held, keyOf, newName, queued, startProxy, startServer, test, until,
} = require("./support.js");

const heartbeatTimeout = 600;

test("a cut subscription is made anew, and the turn is not missed", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const [holder, waiter] = [await connect(t, server), await connect(t, { ...server, heartbeatTimeout: 600_000 })];
  const permit = await holder.semaphore(name, { limit: 1 }).acquire();
  const wait = waiter.semaphore(name, { limit: 1 }).acquire();
  await queued(send, name, 1);
  assert.equal(await send("CLIENT", "KILL", "TYPE", "pubsub"), 2);
  await permit.release(); // Nobody listens at this moment, or the message is lost.
  await (await wait).release(); // It would ask again after minutes.
  await empty(send, name);
});

test("a turn that was passed over is asked for also where the reply to the request comes after that", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const holder = await connect(t, server);
  const patient = { heartbeatTimeout: 3_600_000, responseTimeout: 30_000 }; // It would ask again after 20 minutes.
  const waiter = await connect(t, { ...patient, url: proxy.url });
  const permit = await holder.semaphore(name, { limit: 1, lease: 600_000 }).acquire();
  proxy.onRequest = (text) => (text.includes("EVAL") ? "hold reply" : "pass");
  const wait = waiter.semaphore(name, { limit: 1, lease: 600_000 }).acquire();
  await queued(send, name, 1);

  const [id] = await send("ZRANGE", keyOf(name, "queue"), 0, 0);
  const listens = async () => (await send("PUBSUB", "NUMSUB", `sem:wake:${id.split(":")[1]}`))[1] === 1;
  proxy.onRequest = (text) => (/subscribe/i.test(text) ? "cut" : "pass");
  for (const { isListener, client } of proxy.links) if (isListener) client.destroy();
  await until("nobody listens", async () => !(await listens()));
  await permit.release();
  await queued(send, name, 0);
  proxy.onRequest = () => "pass";
  await until("it listens again", listens);
  for (const { upstream } of proxy.links) upstream.resume();
  const isGranted = wait.then(() => true);
  await until("the turn is asked for", () => Promise.race([isGranted, new Promise(setImmediate)]));
  await (await wait).release();
  await empty(send, name);
});

test("a subscription that went silent is found out", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const holder = await connect(t, server);
  const options = { heartbeatTimeout, responseTimeout: 300 };
  const waiter = await connect(t, { ...options, url: proxy.url });
  const permit = await holder.semaphore(name, { limit: 1 }).acquire();
  const wait = waiter.semaphore(name, { limit: 1 }).acquire();
  await queued(send, name, 1);
  const [silent] = [...proxy.links].filter(({ isListener }) => isListener);
  silent.isSilent = true;
  const others = () => [...proxy.links].filter((link) => link.isListener && link !== silent);
  await until("it has subscribed anew", () => others().length === 1);
  assert.equal(proxy.links.has(silent), false);
  await permit.release();
  await (await wait).release();
  await empty(send, name);
});

test("calls whose replies are lost are repeated", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const semaphores = await connect(t, { url: proxy.url });
  const semaphore = semaphores.semaphore(name, { limit: 1, lease: 3000 });
  await (await semaphore.acquire()).release();

  const loseOne = () => {
    const before = proxy.cuts;
    proxy.onRequest = (text) => (text.includes("EVAL") && proxy.cuts === before ? "lose reply" : "pass");
    return () => assert.equal(proxy.cuts, before + 1);
  };
  let isLost = loseOne();
  const permit = await semaphore.acquire();
  isLost();
  assert.equal(await held(send, name), 1);

  isLost = loseOne();
  const wait = semaphore.acquire();
  await until("the reply to queueing was lost", () => proxy.links.size > 0 && proxy.cuts === 2);
  await queued(send, name, 1);
  isLost();

  isLost = loseOne();
  const end = async () => Number(await send("ZSCORE", keyOf(name, "permits"), permit.id));
  const first = await end();
  await until("it was renewed for two leases", async () => (await end()) > first + 6000);
  isLost();
  assert.equal(permit.isLost, false);

  isLost = loseOne();
  assert.equal(await permit.release(), true);
  isLost();
  assert.equal(await (await wait).release(), true);

  // A wait that is given up is released until that is confirmed, too.
  const [holder, controller] = [await semaphore.acquire(), new AbortController()];
  const given = semaphore.acquire({ signal: controller.signal });
  await queued(send, name, 1);
  isLost = loseOne();
  controller.abort();
  await assert.rejects(given, { name: "AbortError" });
  await queued(send, name, 0);
  await holder.release();
  isLost();
  await empty(send, name);
});

test("a lease that is too short for the round trip ends the acquire", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const waiter = await connect(t, { url: proxy.url, heartbeatTimeout: 600_000 }); // Nothing but the acquire is sent.
  proxy.onRequest = () => {
    setTimeout(() => [...proxy.links].forEach(({ upstream }) => upstream.resume()), 250);
    return "hold reply";
  };
  const wait = waiter.semaphore(name, { limit: 1, lease: 400 }).acquire();
  await assert.rejects(wait, { name: "SemaphoreError", message: /half of the lease of 400 ms/ });
  await empty(send, name);
});

test("where the address leads to another server, the subscription is made anew there", async (t) => {
  const [server, other] = [await startServer(t), await startServer(t)];
  const [send, target] = [await admin(t, other.url), { port: server.port }];
  const proxy = await startProxy(t, target);
  await connect(t, { url: proxy.url, heartbeatTimeout });
  target.port = other.port;
  for (const { isListener, client } of proxy.links) if (!isListener) client.destroy();
  await until("it listens there", async () => (await send("PUBSUB", "CHANNELS", "sem:wake:*")).length === 1);
});

test("many acquires go on while connections are cut", async (t) => {
  const server = await startServer(t);
  const [name, send, semaphores] = [newName(), await admin(t, server.url), await connect(t, server)];
  const other = await connect(t, server);
  const [limit, inside] = [3, new Set()];
  const tasks = Array.from({ length: 300 }, (_, number) =>
    [semaphores, other][number % 2].semaphore(name, { limit }).use(async (permit) => {
      inside.add(permit.id);
      assert.ok(inside.size <= limit);
      await new Promise(setImmediate);
      inside.delete(permit.id);
    }),
  );
  const all = Promise.all(tasks);
  let isDone = false;
  all.finally(() => (isDone = true)).catch(() => {});
  let [looks, cut] = [0, 0];
  const kill = (type) => send("CLIENT", "KILL", "TYPE", type, "SKIPME", "yes");
  const isOver = async () => {
    looks += 1;
    if (looks % 10 === 1) cut += await kill(looks % 20 === 1 ? "normal" : "pubsub");
    return isDone;
  };
  await until("all are done", isOver, 120_000);
  await all;
  assert.ok(cut > 0);
  await empty(send, name);
});

test("a restarted server that has forgotten all goes on in the same order", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphores = await connect(t, { ...server, responseTimeout: 500 });
  const semaphore = semaphores.semaphore(name, { limit: 1, lease: 900 });
  const permit = await semaphore.acquire();
  const order = [];
  const waits = [1, 2, 3].map((number) => semaphore.use(() => order.push(number)));
  await queued(send, name, 3);
  await server.kill();
  await server.start();
  await Promise.all(waits);
  assert.deepEqual(order, [1, 2, 3]);
  if (!permit.lost.aborted) await once(permit.lost, "abort");
  assert.equal(await permit.release(), false);
  await empty(await admin(t, server.url), name);
});

test("a wait ends with an error when the server stays away", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphores = await connect(t, { ...server, heartbeatTimeout, responseTimeout: 200, outageTolerance: 500 });
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  const wait = assert.rejects(semaphore.acquire(), Unavailable);
  await queued(send, name, 1);
  await server.kill();
  await wait;
  await assert.rejects(semaphore.tryAcquire(), Unavailable);
  await server.start();
  const released = () => permit.release().then((answer) => ({ answer }), () => undefined); // It has little patience.
  const { answer } = await until("the release is answered", released);
  assert.equal(answer, false); // The server has forgotten it.
  await empty(await admin(t, server.url), name);
});

test("a release in an outage is told, and goes on; a try ends as early", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphore = (await connect(t, { ...server, responseTimeout: 200 })).semaphore(name, { limit: 2 });
  const permit = await semaphore.acquire();
  const stopped = performance.now();
  await server.kill("SIGSTOP");
  await assert.rejects(semaphore.tryAcquire(), Unavailable);
  await assert.rejects(semaphore.acquire({ timeout: 0 }), Unavailable);
  await assert.rejects(permit.release(), Unavailable);
  assert.ok(performance.now() - stopped < 10_000);
  assert.equal(permit.isLost, false);
  await server.kill("SIGCONT");
  await empty(send, name);
  assert.equal(await permit.release(), true);
});

test("waits and releases outlast a server that takes no more connections", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphore = (await connect(t, { ...server, responseTimeout: 10_000 })).semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  await send("CONFIG", "SET", "maxclients", "1");
  await send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  const all = Promise.all([permit.release(), semaphore.acquire()]);
  all.catch(() => {}); // It is awaited below.
  const rejected = async () => Number(/rejected_connections:(\d+)/.exec(await send("INFO", "stats"))[1]);
  await until("it has refused some", async () => (await rejected()) > 2);
  await send("CONFIG", "SET", "maxclients", "100");
  const [isReleased, next] = await all;
  assert.equal(isReleased, true);
  await next.release();
  await empty(send, name);
});

test("a wake that fails is repeated", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const options = { url: proxy.url, heartbeatTimeout: 600_000 }; // It would ask again after minutes.
  const semaphore = (await connect(t, options)).semaphore(name, { limit: 1 });
  await callAcquire(send, name, `N:dead:1:300:${"n".repeat(16)}`);
  let cuts = 0;
  const { source } = manifest.scripts.find((script) => script.name === "wake");
  proxy.onRequest = (text) => (text.includes(source) && (cuts += 1) === 1 ? "cut" : "pass");
  await (await semaphore.acquire({ timeout: 10_000 })).release();
  assert.ok(cuts > 1);
});

test("a subscription that is cut time and again is made anew with pauses", async (t) => {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  await connect(t, server);
  for (const end = performance.now() + 2000; performance.now() < end; ) await send("CLIENT", "KILL", "TYPE", "pubsub");
  const [, calls] = /cmdstat_subscribe:calls=(\d+)/.exec(await send("INFO", "commandstats"));
  assert.ok(Number(calls) < 50, `${calls} subscriptions`);
});

test("a process that was stopped is no outage", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const waiter = await connect(t, { url: proxy.url, heartbeatTimeout, outageTolerance: 300 });
  const permit = await (await connect(t, server)).semaphore(name, { limit: 1 }).acquire();
  const wait = waiter.semaphore(name, { limit: 1 }).acquire();
  await queued(send, name, 1);
  // Nothing runs in this process for a second, and then the next call fails.
  const end = performance.now() + 1000;
  while (performance.now() < end);
  const before = proxy.cuts;
  proxy.onRequest = (text) => (text.includes("EVAL") && proxy.cuts === before ? "lose reply" : "pass");
  await until("a call has failed", () => proxy.cuts > before);
  await permit.release();
  await (await wait).release();
  await empty(send, name);
});
