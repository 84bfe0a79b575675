"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { Semaphores, Unavailable, Unsupported } = require("../index.js");
const manifest = require("../lib/manifest.json");
const {
  admin, callAcquire, connect, empty, held, keyOf, newName, queued, queueLength, startProxy, startServer, test, until,
} = require("./support.js");

const liveness = 600;

test("a cut subscription is made anew, and the turn is not missed", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const [holder, waiter] = [await connect(t, server), await connect(t, { ...server, liveness: 600_000 })];
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
  const patient = { liveness: 3_600_000, responseTimeout: 30_000 }; // It would ask again after 20 minutes.
  const waiter = await connect(t, { ...patient, url: proxy.url });
  const permit = await holder.semaphore(name, { limit: 1, lease: 600_000 }).acquire();
  proxy.onRequest = (text) => (text.includes("EVALSHA") ? "hold reply" : "pass");
  const wait = waiter.semaphore(name, { limit: 1, lease: 600_000 }).acquire();
  await queued(send, name, 1);

  const [word] = await send("ZRANGE", keyOf(name, "queue"), 0, 0);
  const listens = async () => (await send("PUBSUB", "NUMSUB", `sem:wake:${word.split(":")[1]}`))[1] === 1;
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

test("pings of node-redis do not end the subscription", async (t) => {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  const semaphores = await Semaphores.connect({ url: server.url, pingInterval: 20 });
  t.after(() => semaphores.close());
  const subscriber = async () => /^id=\d+ /.exec(await send("CLIENT", "LIST", "TYPE", "pubsub"))?.[0];
  const before = await subscriber();
  const pings = async () => Number(/cmdstat_ping:calls=(\d+)/.exec(await send("INFO", "commandstats"))?.[1] ?? 0);
  await until("some pings", async () => (await pings()) > 5);
  assert.equal(await subscriber(), before);
});

test("a subscription that went silent is found out", async (t) => {
  const server = await startServer(t);
  const [name, send, proxy] = [newName(), await admin(t, server.url), await startProxy(t, server)];
  const holder = await connect(t, server);
  const options = { liveness, responseTimeout: 300 };
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
    proxy.onRequest = (text) => (text.includes("EVALSHA") && proxy.cuts === before ? "lose reply" : "pass");
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
  const waiter = await connect(t, { url: proxy.url, liveness: 600_000 }); // Nothing but the acquire is sent.
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
  await connect(t, { url: proxy.url, liveness });
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
  const semaphores = await connect(t, { ...server, liveness, responseTimeout: 200, outageTolerance: 500 });
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

/** The semaphore as a user has it who may or may not call scripts. */
async function startJobs(t, name, responseTimeout = 200) {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  const setUser = (...rights) => send("ACL", "SETUSER", "jobs", ...rights);
  await setUser("on", ">secret", "~*", "&*", "+@all");
  const url = server.url.replace("//", "//jobs:secret@");
  const semaphore = (await connect(t, { url, responseTimeout })).semaphore(name, { limit: 1 });
  return { send, semaphore, refuse: () => setUser("-evalsha"), permit: () => setUser("+evalsha") };
}

test("a release that is refused is told, and goes on, as does that of a wait that was given up", async (t) => {
  const name = newName();
  const jobs = await startJobs(t, name);
  const { send, semaphore } = jobs;
  const [permit, controller] = [await semaphore.acquire(), new AbortController()];
  const wait = semaphore.acquire({ signal: controller.signal });
  await queued(send, name, 1);
  await jobs.refuse();
  const warned = once(process, "warning");
  controller.abort();
  await assert.rejects(wait, { name: "AbortError" });
  for (const time of ["the first", "the second"]) {
    await assert.rejects(permit.release(), { name: "Refused", message: /release was refused: .*permissions/ }, time);
  }
  assert.equal((await warned)[0].name, "Refused");
  assert.equal(permit.isLost, false);
  assert.equal(await held(send, name), 1);
  await jobs.permit();
  await empty(send, name);
  assert.equal(await permit.release(), true);
});

test("a release that was refused first, and is unknown then, was lost", async (t) => {
  const name = newName();
  const jobs = await startJobs(t, name, 10_000);
  const permit = await jobs.semaphore.acquire();
  await jobs.refuse();
  const warned = once(process, "warning");
  const released = permit.release();
  await warned;
  await jobs.send("DEL", keyOf(name, "permits"));
  await jobs.permit();
  assert.equal(await released, false);
});

test("what a callback did has not failed where its permit cannot be given back yet", async (t) => {
  const name = newName();
  const jobs = await startJobs(t, name);
  assert.equal(await jobs.semaphore.use(() => jobs.refuse()), "OK");
  await jobs.permit();
  await empty(jobs.send, name);
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
  const options = { url: proxy.url, liveness: 600_000 }; // It would ask again after minutes.
  const semaphore = (await connect(t, options)).semaphore(name, { limit: 1 });
  await callAcquire(send, name, `N:dead:1:300:${"n".repeat(16)}`);
  let cuts = 0;
  const { sha1 } = manifest.scripts.find((script) => script.name === "wake");
  proxy.onRequest = (text) => (text.includes(sha1) && (cuts += 1) === 1 ? "cut" : "pass");
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
  const waiter = await connect(t, { url: proxy.url, liveness, outageTolerance: 300 });
  const permit = await (await connect(t, server)).semaphore(name, { limit: 1 }).acquire();
  const wait = waiter.semaphore(name, { limit: 1 }).acquire();
  await queued(send, name, 1);
  // Nothing runs in this process for a second, and then the next call fails.
  const end = performance.now() + 1000;
  while (performance.now() < end);
  const before = proxy.cuts;
  proxy.onRequest = (text) => (text.includes("EVALSHA") && proxy.cuts === before ? "lose reply" : "pass");
  await until("a call has failed", () => proxy.cuts > before);
  await permit.release();
  await (await wait).release();
  await empty(send, name);
});

test("who is in the queue outlasts a full memory, for as long as an outage", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const patient = await connect(t, { ...server, liveness });
  const impatient = await connect(t, { ...server, liveness, outageTolerance: 500 });
  const permit = await patient.semaphore(name, { limit: 1 }).acquire();
  const [long, short] = [patient, impatient].map((client) => client.semaphore(name, { limit: 1 }).acquire());
  const isOver = assert.rejects(short, { name: "Unavailable", message: /maxmemory/ });
  await queued(send, name, 2);
  await send("CONFIG", "SET", "maxmemory", "1");
  await assert.rejects(impatient.semaphore(name, { limit: 1 }).acquire(), { name: "Refused", message: /maxmemory/ });
  await isOver;
  await send("CONFIG", "SET", "maxmemory", "0");
  await permit.release();
  await (await long).release();
  await empty(send, name);
});

test("what a server refuses for good is told at once", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  await send("SET", keyOf(name, "queue"), "something else", "PX", 60_000);
  await assert.rejects(semaphores.semaphore(name, { limit: 1 }).acquire(), { name: "Refused", message: /SEM_TYPE/ });
});

test("connecting fails at once where nobody listens, and for a user who lacks a right", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const url = server.url.replace("//", "//jobs:secret@");
  await assert.rejects(Semaphores.connect(url), /WRONGPASS/);

  // The line of docs/protocol.md.
  const rights =
    "on >secret ~sem:{* resetchannels &sem:wake:* +evalsha +eval +script|load +subscribe +ping +time +hmget " +
    "+hset +hdel +zadd +zcard +zcount +zscore +zmscore +zrange +zrangebyscore +zrank +zrem +persist +pexpireat " +
    "+pubsub|numsub +publish";
  await send("ACL", "SETUSER", "jobs", ...rights.split(" "));
  const semaphores = await connect(t, { url, liveness });
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  const wait = semaphore.acquire();
  await queued(send, name, 1);
  await permit.release();
  await (await wait).release();
  await empty(send, name);

  await send("ACL", "SETUSER", "jobs", "-zrank");
  const lacks = (error) => error instanceof Unsupported && /zrank/i.test(error.message);
  await assert.rejects(Semaphores.connect(url), lacks);
  await server.kill();
  await assert.rejects(Semaphores.connect(server.url), /ECONNREFUSED/);
});

test("messages that no script sends are ignored, and old ones", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const lease = 30_000;
  const semaphore = semaphores.semaphore(name, { limit: 1, lease });
  const permit = await semaphore.acquire();
  const wait = semaphore.acquire();
  await queued(send, name, 1);
  const [word] = await send("ZRANGE", keyOf(name, "queue"), 0, 0);
  const channel = `sem:wake:${word.split(":")[1]}`;
  const now = Date.now();
  const messages = [
    "", name, "\n\n", `${name}\n${word}`, `${name}\n${word} 5 -1`, `${name}\n${word} 5 99999999999999999`,
    `${name}\n${word} 5 ${now + 2 * lease}\nrubbish`, // As a whole.
    `other\n${word} 5 ${now + 2 * lease}`,
    `${name}\nsomebody 5 ${now + 2 * lease}`,
    `${name}\n${word} 5 ${now + lease - 5000}`, // Granted before the server said "queued".
    `${name}\n${word} 0 0`, // Asks again, and is told that it is queued.
    name + `\n${word} 5 ${now + 2 * lease}`.repeat(20_000), // Too long.
  ];
  for (const message of messages) await send("PUBLISH", channel, message);
  const notUtf8 = "return redis.call('PUBLISH', KEYS[1], ARGV[1] .. '\\nx\\255 1 1')";
  await send("EVAL", notUtf8, 1, channel, `${name}\n${word} 5 ${now + 2 * lease}`);
  const other = semaphore.acquire();
  await queued(send, name, 2);
  await permit.release();
  const granted = await wait;
  assert.ok(granted.fencingToken > permit.fencingToken); // What was published before came before this grant.
  assert.equal(await queueLength(send, name), 1);
  await granted.release();
  await (await other).release();
  await empty(send, name);
});
