"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { AcquireTimeout, Unavailable } = require("../index.js");
const manifest = require("../lib/manifest.json");
const {
  admin, callAcquire, connect, empty, held, isSubscribe, keyOf, newName, queued, startProxy, startServer, test, until,
} = require("./support.js");

const heartbeatTimeout = 600;

test("a failed subscription is repeated, and no grant is missed", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const [holder, waiter] = [await connect(t, server), await connect(t, { ...server, heartbeatTimeout: 600_000 })];
  const permit = await holder.semaphore(name, { limit: 1 }).acquire();
  const wait = waiter.semaphore(name, { limit: 1 }).acquire();
  await queued(send, name, 1);
  assert.equal(await send("CLIENT", "KILL", "TYPE", "pubsub"), 2);
  await permit.release(); // No client is subscribed now, or the message is lost.
  await (await wait).release(); // The heartbeat of the wait is due after minutes.
  await empty(send, name);
});

test("a skipped request is sent again even if its reply arrives later", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const holder = await connect(t, server);
  const patient = { heartbeatTimeout: 3_600_000, responseTimeout: 30_000 }; // Heartbeats are due after 20 minutes.
  const waiter = await connect(t, { ...patient, url: proxy.url });
  const permit = await holder.semaphore(name, { limit: 1, lease: 600_000 }).acquire();
  proxy.onRequest = (text) => (text.includes("EVAL") ? "hold reply" : "pass");
  const wait = waiter.semaphore(name, { limit: 1, lease: 600_000 }).acquire();
  await queued(send, name, 1);

  const [id] = await send("ZRANGE", keyOf(name, "queue"), 0, 0);
  const listens = async () => (await send("PUBSUB", "NUMSUB", `sem:wake:${id.split(":")[1]}`))[1] === 1;
  proxy.onRequest = (text) => (isSubscribe(text) ? "cut" : "pass");
  for (const { isListener, client } of proxy.links) if (isListener) client.destroy();
  await until("nobody listens", async () => !(await listens()));
  await permit.release();
  await queued(send, name, 0);
  proxy.onRequest = () => "pass";
  await until("it is subscribed again", listens);
  for (const { upstream } of proxy.links) upstream.resume();
  const isGranted = wait.then(() => true);
  await until("the request is sent again", () => Promise.race([isGranted, new Promise(setImmediate)]));
  await (await wait).release();
  await empty(send, name);
});

test("a silent subscription is detected", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const holder = await connect(t, server);
  const options = { heartbeatTimeout, responseTimeout: 1000 };
  const waiter = await connect(t, { ...options, url: proxy.url });
  const permit = await holder.semaphore(name, { limit: 1 }).acquire();
  const wait = waiter.semaphore(name, { limit: 1 }).acquire();
  await queued(send, name, 1);
  const [silent] = [...proxy.links].filter(({ isListener }) => isListener);
  silent.isSilent = true;
  const others = () => [...proxy.links].filter((link) => link.isListener && link !== silent);
  await until("it has subscribed again", () => others().length === 1);
  assert.equal(proxy.links.has(silent), false);
  await permit.release();
  await (await wait).release();
  await empty(send, name);
});

test("calls are retried if their replies are lost", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const semaphores = await connect(t, { url: proxy.url });
  const semaphore = semaphores.semaphore(name, { limit: 1, lease: 3000 });
  await (await semaphore.acquire()).release();

  const loseOne = () => {
    const before = proxy.cuts;
    let isLost = false; // or will be
    proxy.onRequest = (text) => {
      if (isLost || !text.includes("EVAL")) return "pass";
      isLost = true;
      return "lose reply";
    };
    return () => assert.equal(proxy.cuts, before + 1);
  };
  let isLost = loseOne();
  const permit = await semaphore.acquire();
  isLost();
  assert.equal(await held(send, name), 1);

  isLost = loseOne();
  const wait = semaphore.acquire();
  await until("the reply 'queued' was lost", () => proxy.links.size > 0 && proxy.cuts === 2);
  await queued(send, name, 1);
  isLost();

  isLost = loseOne();
  const end = async () => Number(await send("ZSCORE", keyOf(name, "permits"), permit.id));
  const first = await end();
  await until("it was refreshed for two leases", async () => (await end()) > first + 6000);
  isLost();
  assert.equal(permit.isLost, false);

  isLost = loseOne();
  assert.equal(await permit.release(), true);
  isLost();
  assert.equal(await (await wait).release(), true);

  // The release of a canceled wait is also retried until Redis confirms it.
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
  const waiter = await connect(t, { url: proxy.url, heartbeatTimeout: 600_000 }); // Only the acquire is sent.
  proxy.onRequest = () => {
    setTimeout(() => [...proxy.links].forEach(({ upstream }) => upstream.resume()), 250);
    return "hold reply";
  };
  const wait = waiter.semaphore(name, { limit: 1, lease: 400 }).acquire();
  await assert.rejects(wait, { name: "SemaphoreError", message: /half of the lease of 400 ms/ });
  await empty(send, name);
});

test("if the address leads to another server, the client subscribes there", async (t) => {
  const [server, other] = [await startServer(t), await startServer(t)];
  const [send, target] = [await admin(t, other.url), { port: server.port }];
  const proxy = await startProxy(t, target);
  await connect(t, { url: proxy.url, heartbeatTimeout });
  target.port = other.port;
  for (const { isListener, client } of proxy.links) if (!isListener) client.destroy();
  await until("it is subscribed there", async () => (await send("PUBSUB", "CHANNELS", "sem:wake:*")).length === 1);
});

test("many acquires succeed while connections fail", async (t) => {
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

test("a server that restarts without data keeps the order", async (t) => {
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

test("a wait ends with an error if the server stays unavailable", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphores = await connect(t, { ...server, heartbeatTimeout, responseTimeout: 1000, outageTolerance: 2000 });
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  const wait = assert.rejects(semaphore.acquire(), Unavailable);
  await queued(send, name, 1);
  await server.kill();
  await wait;
  await assert.rejects(semaphore.tryAcquire(), Unavailable);
  await server.start();
  const released = () => permit.release().then((answer) => ({ answer }), () => undefined); // Its timeout is short.
  const { answer } = await until("the release gets a reply", released);
  assert.equal(answer, false); // The server has lost the permit.
  await empty(await admin(t, server.url), name);
});

test("a release during an outage rejects, and continues; tryAcquire ends as early", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphore = (await connect(t, { ...server, responseTimeout: 500 })).semaphore(name, { limit: 2 });
  const permit = await semaphore.acquire();
  const stopped = performance.now();
  await server.kill("SIGSTOP");
  await assert.rejects(semaphore.tryAcquire(), Unavailable);
  await assert.rejects(semaphore.acquire({ timeout: 0 }), Unavailable);
  const timedOut = await semaphore.acquire({ timeout: 1000 }).catch((error) => error);
  assert.match(timedOut.message, /no permit within 1000 ms \(no queue position is known\), and the last call failed: ./);
  assert.match(timedOut.message, /127\.0\.0\.1:\d+, \w+: no reply within 500 ms$/);
  assert.ok(timedOut instanceof AcquireTimeout && timedOut.cause);
  await assert.rejects(permit.release(), Unavailable);
  assert.ok(performance.now() - stopped < 10_000);
  assert.equal(permit.isLost, false);
  await server.kill("SIGCONT");
  await empty(send, name);
  // On a busy machine, replies may take longer than the response timeout of this client.
  await until("the release is confirmed", () => permit.release().catch(() => false));
});

test("waits and releases survive a server that accepts no more connections", async (t) => {
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

test("a failed wake is retried", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const options = { url: proxy.url, heartbeatTimeout: 600_000 }; // Heartbeats are due after minutes.
  const semaphore = (await connect(t, options)).semaphore(name, { limit: 1 });
  await callAcquire(send, name, `N:dead:1:300:${"n".repeat(16)}`);
  let cuts = 0;
  const { source } = manifest.scripts.find((script) => script.name === "wake");
  proxy.onRequest = (text) => (text.includes(source) && (cuts += 1) === 1 ? "cut" : "pass");
  await (await semaphore.acquire({ timeout: 10_000 })).release();
  assert.ok(cuts > 1);
});

test("a subscription that fails repeatedly is repeated with pauses", async (t) => {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  await connect(t, server);
  for (const end = performance.now() + 2000; performance.now() < end; ) await send("CLIENT", "KILL", "TYPE", "pubsub");
  const [, calls] = /cmdstat_subscribe:calls=(\d+)/.exec(await send("INFO", "commandstats"));
  assert.ok(Number(calls) < 50, `${calls} subscriptions`);
});

test("a stopped process does not count as an outage", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const waiter = await connect(t, { url: proxy.url, heartbeatTimeout, outageTolerance: 300 });
  const permit = await (await connect(t, server)).semaphore(name, { limit: 1 }).acquire();
  const wait = waiter.semaphore(name, { limit: 1 }).acquire();
  await queued(send, name, 1);
  // This process is blocked for a second, and then the next call fails.
  const end = performance.now() + 1000;
  while (performance.now() < end);
  const before = proxy.cuts;
  proxy.onRequest = (text) => (text.includes("EVAL") && proxy.cuts === before ? "lose reply" : "pass");
  await until("a call has failed", () => proxy.cuts > before);
  await permit.release();
  await (await wait).release();
  await empty(send, name);
});
