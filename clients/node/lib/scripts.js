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

/**
 * For each script: how many arguments come before the requests, and how many arguments each request has. Then the same for
 * the values of the reply: how many come before the results, and how many each result has.
 */
const SHAPES = new Map(Object.entries({ acquire: [3, 2, 3, 3], refresh: [0, 2, 2, 1], release: [1, 1, 2, 1] }));

/** Returns whether a reply can be of this script: one result for each request, or one result for all. */
function isReply(script, args, reply) {
  if (!Array.isArray(reply)) return false;
  if (script === "probe") return reply.every((part) => typeof part === "string");
  const [before, each, first, values] = SHAPES.get(script) ?? [0, 1, 3, 0];
  const count = (args.length - before) / each;
  const isRight = reply.length === first + values * count || (script !== "refresh" && reply.length === first + values);
  return isRight && reply.every((part) => typeof part === "number");
}

/** The number of keys that a call has if the semaphore has no groups. */
const WITHOUT_GROUPS = 4;

module.exports = { run, isReply, keysOf, WITHOUT_GROUPS };
