"use strict";

const assert = require("node:assert/strict");
const { newId } = require("../lib/ids.js");
const { isReply } = require("../lib/scripts.js");
const { admin, callAcquire, connect, empty, held, keyOf, newName, queued, queueLength, test } = require("./support.js");

/** Sends a request as if it had reached the server after its release. Returns the ID of the request. */
async function queueLateCopy(send, name, client) {
  const id = newId(client, 1, 30_000);
  assert.equal((await callAcquire(send, name, id))[3], 2);
  return id;
}

const clientOf = (permit) => permit.id.split(":")[1];

test("a permit without a waiter is released", async (t) => {
  const [name, send] = [newName(), await admin(t)];
  for (const isInUse of [true, false]) {
    const [ours, theirs] = [await connect(t), await connect(t)];
    // A client that does not use the name gets the message, too.
    const other = await ours.semaphore(isInUse ? name : newName(), { limit: 1 }).acquire();
    const permit = isInUse ? other : await theirs.semaphore(name, { limit: 1 }).acquire();
    await queueLateCopy(send, name, clientOf(other));
    await permit.release();
    await empty(send, name);
    await other.release();
  }
});

test("late and repeated messages release nothing that is in use", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  const first = await semaphore.acquire();
  const wait = semaphore.acquire();
  await queued(send, name, 1);
  await first.release();
  const permit = await wait;
  const client = clientOf(permit);
  const stray = await queueLateCopy(send, name, client);
  const publish = (name, id) => send("PUBLISH", `sem:wake:${client}`, `${name}\n${id} 1 ${Date.now() + 30_000}`);
  // An invalid ID would make the server reject the release of the other IDs.
  const strange = ["rubbish", `P:${client}:1:30000:short`, newId("other", 1, 1), newId(client, 2 ** 32, 1)];
  await publish("a{b", stray);
  for (const id of [permit.id, permit.id, ...strange, stray]) await publish(name, id);
  await queued(send, name, 0); // All messages have arrived.
  assert.equal(await held(send, name), 1);
  assert.equal(await permit.release(), true);
  await empty(send, name);
});

test("messages of other clients and stale messages are ignored", async (t) => {
  const [name, send, semaphores] = [newName(), await admin(t), await connect(t)];
  const lease = 30_000;
  const semaphore = semaphores.semaphore(name, { limit: 1, lease });
  const permit = await semaphore.acquire();
  const wait = semaphore.acquire();
  await queued(send, name, 1);
  const [id] = await send("ZRANGE", keyOf(name, "queue"), 0, 0);
  const channel = `sem:wake:${id.split(":")[1]}`;
  const now = Date.now();
  const messages = [
    "", name, "\n\n", `${name}\n${id}`, `${name}\n${id} 5 -1`, `${name}\n${id} 5 99999999999999999`,
    `${name}\n${id} 5 ${now + 2 * lease}\nrubbish`, // The whole message is ignored.
    `other\n${id} 5 ${now + 2 * lease}`,
    `${name}\nsomebody 5 ${now + 2 * lease}`,
    `${name}\n${id} 5 ${now + lease - 5000}`, // Granted before the reply "queued".
    `${name}\n${id} 0 0`, // Causes another acquire, which returns "queued".
    name + `\n${id} 5 ${now + 2 * lease}`.repeat(20_000), // The message is too long.
  ];
  for (const message of messages) await send("PUBLISH", channel, message);
  const notUtf8 = "return redis.call('PUBLISH', KEYS[1], ARGV[1] .. '\\nx\\255 1 1')";
  await send("EVAL", notUtf8, 1, channel, `${name}\n${id} 5 ${now + 2 * lease}`);
  const other = semaphore.acquire();
  await queued(send, name, 2);
  await permit.release();
  const granted = await wait;
  assert.ok(granted.fencingToken > permit.fencingToken); // The forged messages came before this grant.
  assert.equal(await queueLength(send, name), 1);
  await granted.release();
  await (await other).release();
  await empty(send, name);
});

test("a reply has one result for each request, or one for all", () => {
  const [one, two] = [["declare", 1, 1, "a", "try"], ["declare", 1, 1, "a", "try", "b", "wait"]];
  for (const [script, args, lengths] of [
    ["acquire", one, [6]], ["acquire", two, [6, 9]], ["refresh", ["a", 1], [3]], ["refresh", ["a", 1, "b", 1], [4]],
    ["release", ["return", "a", "b"], [3, 4]], ["wake", [], [3]],
  ]) {
    const right = [...Array(12).keys()].filter((length) => isReply(script, args, Array(length).fill(1)));
    assert.deepEqual(right, lengths, script);
    assert.equal(isReply(script, args, Array(lengths[0]).fill("1")), false);
  }
  assert.equal(isReply("wake", [], 1), false);
});
