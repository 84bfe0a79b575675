#!/usr/bin/env node
"use strict";

// Three copies of this program print their lines in turns:
//
//     for i in 1 2 3; do node example.js & done; wait

const { setTimeout: sleep } = require("node:timers/promises");
const { Semaphores, LeaseLost } = require("./index.js");

async function main() {
  const semaphores = await Semaphores.connect(process.env.REDIS_URL ?? "redis://127.0.0.1");
  const printers = semaphores.semaphore("printers", { limit: 1, lease: 10_000 });
  try {
    for (let page = 1; page <= 5; page += 1) {
      await printers.use(async (permit) => {
        console.log(`process ${process.pid} prints page ${page} with token ${permit.fencingToken}`);
        await sleep(100, undefined, { signal: permit.lost }); // The work, which stops when it must.
      });
    }
  } catch (error) {
    if (!(error instanceof LeaseLost) && error.name !== "AbortError") throw error;
    console.error("stopped: somebody else may be printing now");
  } finally {
    await semaphores.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
