#!/usr/bin/env node
"use strict";

// Three copies of this program print their lines alternately:
//
//     for i in 1 2 3; do node example.js & done; wait

const { setTimeout: sleep } = require("node:timers/promises");
const { PermitLost, SemaphoreClient } = require("./index.js");

async function main() {
  // After Ctrl-C, the program finishes the page and releases the permit. Then the signal ends the program. Without
  // this, it would end immediately, and the permit would stay taken for the rest of its lease.
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => stop.abort(signal));

  const client = await SemaphoreClient.connect(process.env.REDIS_URL ?? "redis://127.0.0.1");
  const printers = client.semaphore("printers", { limit: 1, lease: 10_000 });
  const print = (page) => async (permit) => {
    console.log(`process ${process.pid} prints page ${page} with token ${permit.fencingToken}`);
    await sleep(100, undefined, { signal: permit.lost }); // The work, which stops if the permit is lost.
  };
  try {
    for (let page = 1; page <= 50; page += 1) await printers.use(print(page), { signal: stop.signal });
  } catch (error) {
    if (error instanceof PermitLost || error.name === "AbortError") console.error("stopped: another process may be printing now");
    else if (!stop.signal.aborted) throw error;
  }
  await client.close();
  if (stop.signal.aborted) process.kill(process.pid, stop.signal.reason);
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
