"use strict";

const { randomBytes } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");

const { isName } = require("./checks");
const { Connection, Link } = require("./connection");
const { Closed, says, Unsupported } = require("./errors");
const { Listener } = require("./listener");
const { keysOf, run } = require("./scripts");
const { Semaphore } = require("./semaphore");
const { leaseOf, newClient, newWord } = require("./words");

/** What all semaphores of a client share: the two connections, and who waits. */
class Server {
  /** Requests that wait, by their words. */
  waiters = new Map();
  /** The words of permits that are held. */
  #held = new Set();
  #client = newClient();
  /** Semaphores of which anything waits or is held, by name. */
  #inUse = new Map();
  #connection;
  #checks;
  #closing;
  #drained = () => {};
  #underWay = new Set();

  constructor(redis, { prefix, liveness, responseTimeout, outageTolerance }) {
    Object.assign(this, { prefix, liveness, responseTimeout, outageTolerance });
    this.askInterval = liveness / 3;
    /** Of a release, a try and a close. */
    this.patience = 2 * responseTimeout;
    this.#connection = new Connection(() => Link.open(redis, responseTimeout));
    this.listener = new Listener(`${prefix}:wake:${this.#client}`, {
      // node-redis 4.5 cannot send PING where it has subscribed, and takes that for an error.
      open: () => Link.open({ ...redis, pingInterval: undefined }, responseTimeout),
      onMessage: (message) => this.#handOff(message),
      onSubscribed: () => this.#askAgain(),
    });
  }

  async start() {
    try {
      await this.listener.start();
      await this.#probe();
    } catch (error) {
      await this.#disconnect();
      throw error;
    }
    this.#checks = setInterval(() => this.#check(), this.askInterval);
  }

  async #probe() {
    const name = `probe-${randomBytes(16).toString("hex")}`;
    const [command, why] = (await this.call(name, "probe", ["P", this.#client])).reply;
    if (command) throw new Unsupported(`this Redis server cannot be used, or not by this user: ${command}: ${why}`);
  }

  /** A name has one queue at a time: so what waits keeps its order, and is asked for in one call. */
  inUse(semaphore) {
    const { name, limit, lease } = semaphore;
    const other = this.#inUse.get(name) ?? semaphore;
    if (other.limit !== limit || other.lease !== lease) {
      throw new RangeError(
        `semaphore ${name} is in use with a limit of ${other.limit} and a lease of ${other.lease} ms, ` +
          `not with ${limit} and ${lease} ms`,
      );
    }
    return other;
  }

  use(semaphore) {
    this.#inUse.set(semaphore.name, semaphore);
  }

  unuse(semaphore) {
    if (this.#inUse.get(semaphore.name) === semaphore) this.#inUse.delete(semaphore.name);
  }

  newWord(weight, lease) {
    return newWord(this.#client, weight, lease);
  }

  hold(word) {
    this.#held.add(word);
  }

  /** It was released, or is lost. */
  drop(word) {
    this.#held.delete(word);
    if (this.#held.size === 0) this.#drained();
  }

  async call(name, script, args, timeout = this.responseTimeout) {
    try {
      return await run(this.#connection, script, keysOf(this.prefix, name), args, timeout);
    } catch (error) {
      if (says(error, "READONLY")) {
        // The primary is elsewhere by now.
        this.listener.reset(error);
        await this.#connection.reset(error);
      }
      throw error;
    }
  }

  #handOff({ name, grants }) {
    for (const grant of grants) {
      const { waiter, queue } = this.waiters.get(grant.word) ?? {};
      if (queue?.name === name) queue.handedOff(waiter, grant);
      else if (!waiter && !this.#held.has(grant.word) && grant.token > 0) this.#giveBack(name, grant.word);
    }
  }

  /** Nobody here wants that permit: a request has overtaken its release. */
  #giveBack(name, word) {
    const lease = leaseOf(this.#client, word);
    if (lease === undefined || !isName(name)) return; // No script has sent that.
    const semaphore = this.#inUse.get(name) ?? new Semaphore(this, name, { limit: 0, lease });
    semaphore.giveBack(word, performance.now() + lease);
  }

  #askAgain() {
    for (const queue of new Set([...this.waiters.values()].map(({ queue }) => queue))) queue.askAgain();
  }

  #check() {
    const publish = (...args) => this.#connection.call(["PUBLISH", ...args], this.responseTimeout);
    this.listener.check(publish, this.responseTimeout).catch(() => {
      // Nothing was learnt about the other connection. The next call tells what is wrong with this one.
    });
  }

  /** `close` waits for it. */
  track(promise) {
    this.#underWay.add(promise);
    promise.then(() => this.#underWay.delete(promise));
  }

  /** What is asked for while it closes would be left behind. */
  checkOpen() {
    if (this.#closing) throw new Closed();
  }

  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    await undefined; // First of all nobody may begin anything more.
    for (const { waiter, queue } of [...this.waiters.values()]) queue.giveUp(waiter, new Closed());
    for (const semaphore of this.#inUse.values()) semaphore.stopRenewing();
    if (this.#held.size > 0) await new Promise((resolve) => (this.#drained = resolve));
    const patience = new AbortController();
    const released = Promise.all(this.#underWay).then(() => patience.abort());
    const tooLong = sleep(this.patience, undefined, { signal: patience.signal }).catch(() => {});
    await Promise.race([released, tooLong]);
    clearInterval(this.#checks);
    await this.#disconnect();
  }

  async #disconnect() {
    this.listener.close();
    await this.#connection.close();
  }
}

module.exports = { Server };
