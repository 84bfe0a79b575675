#!/usr/bin/env node
"use strict";

// Runs the vectors of lua/vectors: this client must call the scripts like all others.
//
//     node vectors.js [file.json ...]        (REDIS_URL names the server)

const { randomUUID } = require("node:crypto");
const fs = require("node:fs");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const { isDeepStrictEqual } = require("node:util");
const { createClient, ErrorReply } = require("redis");

const manifest = require("./lib/manifest.json");
const { run } = require("./lib/scripts");

const FOLDER = path.join(__dirname, "..", "..", "lua", "vectors");
const KEYS = ["permits", "queue", "clients", "state", "order", "turns"];
const URL = process.env.REDIS_URL ?? "redis://127.0.0.1";

class Mismatch extends Error {}

/** A vector that node-redis 4.5 cannot run. It is skipped and reported. */
class Unable extends Error {}

async function connect() {
  const socket = { reconnectStrategy: () => new Error("this connection does not reconnect") };
  const client = createClient({ url: URL, socket, RESP: 2 }).on("error", () => {}); // Calls report it.
  await client.connect();
  return client;
}

const end = (client) => (client.destroy ? client.destroy() : client.disconnect());

class Case {
  #listener;
  #messages = [];

  constructor(client) {
    this.client = client;
    const name = `vector-${randomUUID()}`;
    this.variables = { name, channel: `sem:wake:${name}`, sharded: `sem:{${name}}:wake:${name}` };
    for (const key of KEYS) this.variables[key] = `sem:{${name}}:${key}`;
  }

  fillIn(steps) {
    return JSON.parse(JSON.stringify(steps).replaceAll("@", this.variables.name));
  }

  async call(step) {
    const keys = (step.with_keys ?? KEYS.slice(0, 4)).map((key) => this.variables[key]);
    const args = step.args.map((word) => this.#value(word));
    const byText = async ({ source }, args) => ({ reply: await this.client.sendCommand(["EVAL", source, ...args]) });
    const connection = { run: byText };
    let reply;
    try {
      ({ reply } = await run(connection, step.call, keys, args));
    } catch (error) {
      if (error instanceof ErrorReply && step.error && error.message.startsWith(step.error)) return;
      throw error;
    }
    if (step.error) throw new Mismatch(`a reply instead of an error: ${JSON.stringify(reply)}`);
    this.#expect(step.reply, reply);
  }

  async command(step) {
    const reply = await this.client.sendCommand(step.command.map((word) => this.#value(word)));
    if ("reply" in step) this.#expect(step.reply, reply);
  }

  async keys(step) {
    for (const [key, expected] of Object.entries(step.keys)) {
      const found = await this.#contents(key);
      if (!isDeepStrictEqual(Object.keys(expected).sort(), Object.keys(found).sort())) {
        throw new Mismatch(`${key} has ${JSON.stringify(found)}`);
      }
      for (const [member, value] of Object.entries(expected)) this.#expect(value, found[member], `${key} ${member}`);
    }
  }

  async expires(step) {
    for (const [key, expected] of Object.entries(step.expires)) {
      this.#expect(expected, await this.client.sendCommand(["PTTL", this.variables[key]]), `expiry of ${key}`);
    }
  }

  async until(step) {
    for (;;) {
      const [seconds, us] = await this.client.sendCommand(["TIME"]);
      const left = this.variables[step.until] - (Number(seconds) * 1000 + Math.floor(Number(us) / 1000));
      if (left <= 0) return;
      await sleep(left);
    }
  }

  async listen(step) {
    this.#listener = await connect();
    const receive = (message) => this.#messages.push(message);
    if (step.sharded && !this.#listener.sSubscribe) throw new Unable("this node-redis cannot SSUBSCRIBE");
    if (step.sharded) await this.#listener.sSubscribe(this.variables[step.listen], receive);
    else await this.#listener.subscribe(this.variables[step.listen], receive);
  }

  async message(step) {
    for (const deadline = performance.now() + 5000; this.#messages.length === 0; await sleep(5)) {
      if (performance.now() > deadline) throw new Mismatch("no message arrived");
    }
    const lines = this.#messages.shift().split("\n");
    this.#expect(step.message, lines.map((line) => line.split(" ")), "message");
  }

  async close() {
    await this.client.sendCommand(["DEL", ...KEYS.map((key) => this.variables[key])]);
    if (this.#listener) end(this.#listener);
  }

  async #contents(key) {
    const name = this.variables[key];
    const command = key === "state" ? ["HGETALL", name] : ["ZRANGE", name, "0", "-1", "WITHSCORES"];
    const flat = await this.client.sendCommand(command);
    const found = {};
    for (let i = 0; i < flat.length; i += 2) found[flat[i]] = flat[i + 1];
    return found;
  }

  #value(expression) {
    if (typeof expression === "string") return expression;
    const value = this.variables[expression.is];
    return String("plus" in expression ? value + expression.plus : value);
  }

  #expect(expected, found, where = "reply") {
    const check = (isMet) => {
      if (isMet) return;
      const [is, should] = [found, expected].map((value) => JSON.stringify(value));
      throw new Mismatch(`${where} is ${is}, expected ${should} of ${JSON.stringify(this.variables)}`);
    };
    if (Array.isArray(expected)) {
      check(Array.isArray(found) && found.length === expected.length);
      expected.forEach((part, index) => this.#expect(part, found[index], `${where}[${index}]`));
      return;
    }
    const text = typeof expected === "string" ? expected : this.variables[expected.is];
    if (typeof text === "string") return check(found === text);
    check(typeof found === "number" || /^-?\d+$/.test(found));
    const number = Number(found);
    if (typeof expected === "number") check(number === expected);
    else if ("is" in expected) check(number === text + (expected.plus ?? 0));
    else if ("above" in expected) check(number > this.variables[expected.above]);
    else if ("from" in expected) check(number >= expected.from && number <= expected.to);
    if (expected.save) this.variables[expected.save] = number;
  }
}

const kinds = ["call", "command", "keys", "expires", "until", "listen", "message"];

async function runCase({ steps }, client) {
  const running = new Case(client);
  try {
    for (const [index, step] of running.fillIn(steps).entries()) {
      const kind = kinds.find((kind) => kind in step);
      await running[kind](step).catch((cause) => {
        if (cause instanceof Unable) throw cause;
        throw new Mismatch(`step ${index + 1} ${JSON.stringify(step)}: ${cause.message}`, { cause });
      });
    }
  } finally {
    await running.close();
  }
}

/** Returns whether a version is older, by the first two numbers. */
const isOlder = (version, needed) => {
  const [[a, b], [c, d]] = [version, needed].map((text) => text.split(".").map(Number));
  return a < c || (a === c && b < d);
};

async function main(files) {
  const client = await connect();
  const [, version] = /redis_version:(\S+)/.exec(await client.sendCommand(["INFO", "server"]));
  let [passed, failed] = [0, 0];
  const all = fs.readdirSync(FOLDER).filter((file) => file.endsWith(".json")).sort();
  for (const file of files.length > 0 ? files : all.map((file) => path.join(FOLDER, file))) {
    for (const one of JSON.parse(fs.readFileSync(file, "utf8")).cases) {
      if (isOlder(version, one.needs ?? "0.0")) continue;
      try {
        await runCase(one, client);
        passed += 1;
      } catch (error) {
        if (!(error instanceof Unable)) failed += 1;
        console.error(`${path.basename(file)}: ${one.name}: ${error instanceof Unable ? "skipped: " : ""}${error.message}`);
      }
    }
  }
  // If a client changed the text of a script, it would send the whole text with each call.
  const known = await client.sendCommand(["SCRIPT", "EXISTS", ...manifest.scripts.map((script) => script.sha1)]);
  if (known.some((isKnown) => !isKnown)) {
    failed += 1;
    console.error(`the server does not know all scripts of the manifest: ${known}`);
  }
  console.log(`${passed} cases passed, ${failed} failed`);
  end(client);
  return failed > 0 || passed === 0 ? 1 : 0;
}

main(process.argv.slice(2)).then(
  (status) => (process.exitCode = status),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
