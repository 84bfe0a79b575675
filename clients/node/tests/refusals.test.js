"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const {
  admin, connect, empty, failToSave, held, keyOf, newName, queued, scriptCalls, startServer, test, until,
} = require("./support.js");

const heartbeatTimeout = 600;

/** Returns the semaphore of a user whose right to call scripts can be changed. */
async function startJobs(t, name, responseTimeout = 200) {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  const setUser = (...rights) => send("ACL", "SETUSER", "jobs", ...rights);
  await setUser("on", ">secret", "~*", "&*", "+@all");
  const url = server.url.replace("//", "//jobs:secret@");
  const semaphore = (await connect(t, { url, responseTimeout })).semaphore(name, { limit: 1 });
  return { send, semaphore, refuse: () => setUser("-eval", "-evalsha"), permit: () => setUser("+eval", "+evalsha") };
}

test("a rejected release is reported and continues, and so does the release of a canceled wait", async (t) => {
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
    await assert.rejects(permit.release(), { name: "Rejected", message: /release was rejected: .*permissions/ }, time);
  }
  assert.equal((await warned)[0].name, "Rejected");
  assert.equal(permit.isLost, false);
  assert.equal(await held(send, name), 1);
  await jobs.permit();
  await empty(send, name);
  assert.equal(await permit.release(), true);
});

test("a release that is rejected first, and unknown later, reports a loss", async (t) => {
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

test("a permit that is lost while the server passes through a state without writes counts as lost", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const permit = await (await connect(t, server)).semaphore(name, { limit: 1 }).acquire();
  await send("DEL", keyOf(name, "permits"));
  await send("CONFIG", "SET", "min-replicas-to-write", 1);
  const released = permit.release();
  await until("it was rejected", async () => /errorstat_NOREPLICAS/.test(await send("INFO", "errorstats")));
  await send("CONFIG", "SET", "min-replicas-to-write", 0);
  assert.equal(await released, false);
});

test("a request that the server rejected at once needs no release", async (t) => {
  const server = await startServer(t);
  const [name, send, semaphores] = [newName(), await admin(t, server.url), await connect(t, server)];
  await send("SET", keyOf(name, "queue"), "something else");
  const calls = await scriptCalls(send);
  await assert.rejects(semaphores.semaphore(name, { limit: 1 }).acquire(), { name: "Rejected", message: /SEM_TYPE/ });
  await send("CONFIG", "SET", "requirepass", "changed");
  await send("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal");
  await assert.rejects(semaphores.semaphore(`${name}-2`, { limit: 1 }).acquire(), { name: "Rejected", message: /NOAUTH/ });
  await semaphores.close();
  assert.equal(await scriptCalls(send), calls + 1);
});

test("a callback does not fail if its permit cannot be released yet", async (t) => {
  const name = newName();
  const jobs = await startJobs(t, name);
  assert.equal(await jobs.semaphore.use(() => jobs.refuse()), "OK");
  await jobs.permit();
  await empty(jobs.send, name);
});

test("a permanent error is reported immediately", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  await send("SET", keyOf(name, "queue"), "something else", "PX", 60_000);
  await assert.rejects(semaphores.semaphore(name, { limit: 1 }).acquire(), { name: "Rejected", message: /SEM_TYPE/ });
});

test("a queued request survives a server that cannot save its data", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphore = (await connect(t, { ...server, heartbeatTimeout })).semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  const wait = semaphore.acquire();
  await queued(send, name, 1);
  await failToSave(send);
  const calls = await scriptCalls(send);
  await until("a heartbeat was rejected", async () => (await scriptCalls(send)) > calls + 1);
  await assert.rejects(semaphore.acquire(), { name: "Rejected", message: /MISCONF/ });
  await send("CONFIG", "SET", "save", "");
  await permit.release();
  await (await wait).release();
});

test("a queued request survives a full memory, for as long as an outage", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const patient = await connect(t, { ...server, heartbeatTimeout });
  const impatient = await connect(t, { ...server, heartbeatTimeout, outageTolerance: 500 });
  const permit = await patient.semaphore(name, { limit: 1 }).acquire();
  const [long, short] = [patient, impatient].map((client) => client.semaphore(name, { limit: 1 }).acquire());
  const isOver = assert.rejects(short, { name: "Unavailable", message: /maxmemory/ });
  await queued(send, name, 2);
  await send("CONFIG", "SET", "maxmemory", "1");
  const message = new RegExp(`^semaphore ${name}: acquire was rejected: 127.0.0.1:${server.port}, acquire: .*maxmemory`);
  await assert.rejects(impatient.semaphore(name, { limit: 1 }).acquire(), { name: "Rejected", message });
  await isOver;
  await send("CONFIG", "SET", "maxmemory", "0");
  await permit.release();
  await (await long).release();
  await empty(send, name);
});
