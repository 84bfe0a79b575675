"use strict";

const scripts = new Map(manifest().scripts.map((script) => [script.name, script]));

/** Reads a symbolic link. A package contains a copy of the file. */
function manifest() {
  try {
    return require("./manifest.json");
  } catch (cause) {
    throw new Error("lib/manifest.json is missing: to copy clients/node alone, use cp -rL or npm pack", { cause });
  }
}

/** Returns the keys of a semaphore, in the order of the scripts. */
const keysOf = (prefix, name) =>
  ["permits", "queue", "clients", "state", "order", "turns"].map((key) => `${prefix}:{${name}}:${key}`);

/** Runs a script on the keys of a semaphore. */
const run = (connection, script, keys, args, timeout) =>
  connection.run(scripts.get(script), [String(keys.length), ...keys, ...args.map(String)], timeout);

/** The number of keys that a call has if the semaphore has no groups. */
const WITHOUT_GROUPS = 4;

module.exports = { run, keysOf, WITHOUT_GROUPS };
