"use strict";

// Calls of a program take effect in their order, even if the program does not await them.

const assert = require("node:assert/strict");
const { AcquireTimeout } = require("../index.js");
const manifest = require("../lib/manifest.json");
const { admin, connect, empty, held, isRelease, newName, queued, startProxy, startServer, test, until } = require("./support.js");

test("a release that is not awaited comes before the next request", async (t) => {
  const server = await startServer(t); // It does not know the scripts yet.
  const [name, send] = [newName(), await admin(t, server.url)];
  const semaphore = (await connect(t, server)).semaphore(name, { limit: 1 });
  for (let round = 0; round < 100; round += 1) {
    if (round % 30 === 10) await send("SCRIPT", "FLUSH");
    const permit = await semaphore.acquire();
    permit.release();
    const again = await semaphore.tryAcquire();
    assert.ok(again, `round ${round}`);
    again.release();
    const last = await semaphore.acquire({ timeout: 0 });
    assert.equal(await semaphore.tryAcquire(), null);
    last.release();
  }
  await empty(send, name);
});

test("a release comes before the next request while an earlier release has no reply", async (t) => {
  const server = await startServer(t);
  const [name, proxy] = [newName(), await startProxy(t, server)];
  const send = await admin(t, server.url);
  const semaphore = (await connect(t, { url: proxy.url, responseTimeout: 60_000 })).semaphore(name, { limit: 3 });
  const permits = await Promise.all([1, 2, 3].map(() => semaphore.acquire()));
  let tries = 0;
  proxy.onRequest = (text) => {
    tries += text.split("\r\ntry\r\n").length - 1;
    return isRelease(text) ? "hold reply" : "pass";
  };
  permits[0].release();
  await until("it is released", async () => (await held(send, name)) === 2);
  permits[1].release();
  const two = semaphore.tryAcquire({ weight: 2 });
  permits[2].release();
  const three = semaphore.tryAcquire();
  await until("all were sent", () => tries === 2);
  proxy.onRequest = () => "pass";
  for (const { upstream } of proxy.links) upstream.resume();
  for (const permit of await Promise.all([two, three])) await permit.release();
  await empty(send, name);
});

test("a release that the server lets repeat comes before the next request", async (t) => {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  const [client, others, options] = [await connect(t, server), await connect(t, server), { limit: 2 }];
  const { source } = manifest.scripts.find((script) => script.name === "acquire");
  for (const cause of ["lost script", "first group", "both"]) {
    for (let round = 0; round < 10; round += 1) {
      const name = newName();
      const semaphore = client.semaphore(name, options);
      await (await semaphore.acquire()).release();
      const permit = await semaphore.acquire();
      const held = await others.semaphore(name, options).acquire({ group: cause === "lost script" ? undefined : "other" });
      if (cause !== "first group") {
        await send("SCRIPT", "FLUSH");
        await send("SCRIPT", "LOAD", source);
      }
      const released = permit.release();
      for (let turn = 0; turn < round; turn += 1) await undefined; // The release is sent, and has no reply.
      const again = await semaphore.tryAcquire({ group: cause === "lost script" ? undefined : "own" });
      assert.ok(again, `${cause}, round ${round}`);
      assert.deepEqual([await released, await again.release(), await held.release()], [true, true, true]);
      await empty(send, name);
    }
  }
});

test("a request comes before a later release", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const permit = await semaphore.acquire();
  for (const isUnderWay of [false, true]) {
    const holder = isUnderWay ? await semaphore.acquire() : permit;
    const first = isUnderWay && semaphore.tryAcquire(); // Its call has no reply when the next call is made.
    await undefined;
    const before = semaphore.tryAcquire();
    holder.release();
    const after = semaphore.tryAcquire();
    assert.deepEqual([await first, await before], [isUnderWay && null, null]);
    await (await after).release();
  }
  await empty(send, name);
});

test("a canceled wait is not ahead of the next request", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 2 });
  for (let round = 0; round < 20; round += 1) {
    const permit = await semaphore.acquire();
    const controller = new AbortController();
    const wait = assert.rejects(semaphore.acquire({ weight: 2, signal: controller.signal }), { name: "AbortError" });
    if (round % 2) await queued(send, name, 1);
    controller.abort();
    const other = await semaphore.tryAcquire();
    await wait;
    assert.ok(other, `round ${round}`);
    await assert.rejects(semaphore.acquire({ timeout: 5 }), AcquireTimeout);
    other.release();
    permit.release();
    await (await semaphore.tryAcquire({ weight: 2 })).release();
  }
  await empty(send, name);
});

test("permits that use and a block have released are free for the next request", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const options = { limit: 1 };
  for (let round = 0; round < 20; round += 1) {
    const [semaphore, other] = [semaphores.semaphore(name, options), semaphores.semaphore(name, options)];
    await semaphore.use(() => {});
    const permit = await other.tryAcquire();
    // Old versions of Node.js 18 do not have the symbol. A block awaits the method; this only calls it.
    if (Symbol.asyncDispose) permit[Symbol.asyncDispose]();
    else permit.release();
    await (await semaphore.tryAcquire()).release();
  }
  await empty(send, name);
});
