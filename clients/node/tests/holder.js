"use strict";

// Acquires a permit, prints "held TOKEN", and releases the permit after a line on standard input.

const { once } = require("node:events");
const { SemaphoreClient } = require("../index.js");

async function main([name, limit, lease, heartbeatTimeout, group]) {
  const semaphores = await SemaphoreClient.connect(process.env.REDIS_URL ?? "redis://127.0.0.1", { heartbeatTimeout: Number(heartbeatTimeout) });
  const permit = await semaphores.semaphore(name, { limit: Number(limit), lease: Number(lease) }).acquire({ group: group || undefined });
  process.stdout.write(`held ${permit.fencingToken}\n`);
  await once(process.stdin, "data");
  await permit.release();
  await semaphores.close();
  process.exit(0);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
