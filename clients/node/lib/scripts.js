"use strict";

const manifest = require("./manifest.json"); // A symbolic link; a package contains a copy.

const scripts = new Map(manifest.scripts.map((script) => [script.name, script]));

/** Returns the four keys of a semaphore, in the order of the scripts. */
const keysOf = (prefix, name) =>
  ["permits", "queue", "clients", "state"].map((key) => `${prefix}:{${name}}:${key}`);

/** Runs a script on the keys of a semaphore. */
const run = (connection, script, keys, args, timeout) =>
  connection.run(scripts.get(script), [String(keys.length), ...keys, ...args.map(String)], timeout);

module.exports = { run, keysOf };
