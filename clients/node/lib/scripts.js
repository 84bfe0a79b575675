"use strict";

const { ErrorReply } = require("redis");
const manifest = require("./manifest.json"); // A link; a package has a copy.

const scripts = new Map(manifest.scripts.map((script) => [script.name, script]));

/** The four keys of a semaphore, in the order in which scripts take them. */
const keysOf = (prefix, name) =>
  ["permits", "queue", "clients", "state"].map((key) => `${prefix}:{${name}}:${key}`);

/** Runs a script: by its SHA-1, or with its text where the server does not know it yet. */
async function run(connection, script, keys, args, timeout) {
  const { sha1, source } = scripts.get(script);
  const rest = [String(keys.length), ...keys, ...args.map(String)];
  try {
    return await connection.call(["EVALSHA", sha1, ...rest], timeout);
  } catch (error) {
    if (!(error instanceof ErrorReply && error.message.startsWith("NOSCRIPT"))) throw error;
    return connection.call(["EVAL", source, ...rest], timeout);
  }
}

module.exports = { run, keysOf };
