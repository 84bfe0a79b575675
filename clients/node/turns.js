#!/usr/bin/env node
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { SemaphoreClient } = require("./index.js");

const usage = `usage: turns.js NAME LIMIT COUNT HOLD_MS LEASE_MS

Acquires COUNT permits, one after another, and holds each for HOLD_MS. Prints for each permit
"held TOKEN MICROSECONDS" and "released MICROSECONDS" (wall clock). REDIS_URL names the server.`;

/**
 * Returns a wall clock in microseconds, because performance.timeOrigin differs from it by about 100 µs. If the process
 * does not run at the beginning of a millisecond, the measured offset is too small, and permits would seem to begin too
 * early. So this measures 100 times, which is enough for a busy machine.
 */
function wallClock() {
  let offset = -Infinity;
  for (let i = 0; i < 100; i += 1) {
    const before = Date.now();
    let now = before;
    while (now === before) now = Date.now();
    offset = Math.max(offset, now - performance.now());
  }
  return () => Math.round((offset + performance.now()) * 1000);
}

async function main([name, ...numbers]) {
  const [limit, count, hold, lease] = numbers.map(Number);
  if (numbers.length !== 4 || !numbers.every((number) => /^\d+$/.test(number))) {
    console.error(usage);
    process.exit(2);
  }
  const now = wallClock();
  // To a pipe or a file, this writes immediately.
  const print = (...words) => process.stdout.write(`${words.join(" ")}\n`);
  const client = await SemaphoreClient.connect(process.env.REDIS_URL ?? "redis://127.0.0.1");
  const semaphore = client.semaphore(name, { limit, lease });
  for (let turn = 0; turn < count; turn += 1) {
    const permit = await semaphore.acquire();
    print("held", permit.fencingToken, now());
    await sleep(hold);
    print("released", now());
    if (!(await permit.release())) throw new Error(`the permit ${permit.id} was lost`);
  }
  await client.close();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
