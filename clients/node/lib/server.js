"use strict";

const { randomBytes } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");
const { ErrorReply } = require("redis");

const { addressOf } = require("./address");
const { isName } = require("./checks");
const { Connection, isNoScript, Link } = require("./connection");
const {
  Closed, cluster, failureOfConnect, isFull, isOfReplica, isPassing, named, notRedis, shown, Unsupported,
} = require("./errors");
const { Listener } = require("./listener");
const { Releases } = require("./releases");
const { WITHOUT_GROUPS, isReply, keysOf, run } = require("./scripts");
const { Semaphore } = require("./semaphore");
const { leaseOf, newClient, newId } = require("./ids");

/** For the source, for the groups, and if the server has lost its scripts again. */
const MOST_REPEATS = 3;

/** The shared part of all semaphores of a client: two connections, and the waiting requests. */
class Server {
  /** Waiting requests by ID. */
  waiters = new Map();
  /** The IDs of the held permits. */
  #held = new Set();
  #client = newClient();
  #address;
  /** Semaphores with waiting requests or held permits, by name. */
  #inUse = new Map();
  /** Current releases by name. */
  #releases = new Map();
  #connection;
  /** The number of calls so far. */
  #calls = 0;
  /** The calls that the server did not accept, and that are being repeated. */
  #repeating = new Set();
  /** Checks the connections. Only this timer keeps the process alive, while this client is busy. */
  #checks;
  /** The number of waits, held permits and calls for which the process is kept alive. */
  #busy = 0;
  #closing;
  #drained = () => {};
  /** Releases without an outcome. */
  #underWay = new Set();

  constructor(redis, { prefix, heartbeatTimeout, responseTimeout, outageTolerance }) {
    Object.assign(this, { prefix, heartbeatTimeout, responseTimeout, outageTolerance });
    this.#address = addressOf(redis.socket);
    this.askInterval = heartbeatTimeout / 3;
    /** The call timeout, for releases, tryAcquire and close. */
    this.patience = 2 * responseTimeout;
    this.#connection = new Connection(() => this.#open(redis));
    this.listener = new Listener(`${prefix}:wake:${this.#client}`, {
      // node-redis 4.5 cannot send PING after it has subscribed, and reports an error.
      open: () => Link.open({ ...redis, pingInterval: undefined }, responseTimeout),
      onMessage: (message) => this.#handOff(message),
      onSubscribed: () => this.#askAgain(),
    });
  }

  async start() {
    this.#checks = setInterval(() => this.#check(), this.askInterval).unref();
    this.begin();
    try {
      await this.#connection.open();
      await this.listener.start();
      await this.#probe();
    } catch (error) {
      clearInterval(this.#checks);
      await this.#disconnect();
      throw failureOfConnect(named(error, this.#address, "probe"));
    } finally {
      this.end();
    }
  }

  async #open(redis) {
    const link = await Link.open(redis, this.responseTimeout);
    try {
      await this.#examine(link);
    } catch (error) {
      link.end(error);
      throw error;
    }
    return link;
  }

  /**
   * Detects clusters and sentinels, because the probe may succeed on a node of a cluster. Every user may call HELLO.
   * The reply to PING shows that the server requires a password. A long command would end the connection without a reply.
   */
  async #examine(link) {
    const [hello, ping] = await Promise.allSettled([link.command(["HELLO"]), link.command(["PING"])]);
    // HELLO may be renamed, or unknown to a proxy. The probe finds out more.
    const mode = Array.isArray(hello.value) ? hello.value[hello.value.indexOf("mode") + 1] : undefined;
    if (mode === "cluster") throw cluster(this.#address);
    if (mode === "sentinel") {
      throw new Unsupported(`${this.#address} is a Redis Sentinel. Connect to the primary that it watches`);
    }
    // A server with too many clients replies only to HELLO, and closes the connection.
    if (hello.reason && isPassing(hello.reason)) throw named(hello.reason, this.#address, "HELLO");
    if (link.error) throw link.error;
    // A server that accepts no writes now may reject even PING. The next call finds out more.
    if (ping.reason && !isPassing(ping.reason) && !isFull(ping.reason)) throw named(ping.reason, this.#address, "PING");
  }

  /** Tries all commands. The first call of a script uses EVAL, and the second call uses EVALSHA. */
  async #probe() {
    const name = `probe-${randomBytes(16).toString("hex")}`;
    const probe = () => this.call({ name }, "probe", ["P", this.#client]);
    const [{ reply: [command, why] }] = await Promise.all([probe(), probe()]);
    if (command) throw named(new ErrorReply(shown(why.trim())), this.#address, `probe, ${shown(command)}`);
  }

  /** Keeps the process alive until `end`. */
  begin() {
    this.#busy += 1;
    if (this.#busy === 1) this.#checks.ref();
  }

  end() {
    this.#busy -= 1;
    if (this.#busy === 0) this.#checks.unref();
  }

  /**
   * Returns the semaphore of this name that is in use, otherwise the given semaphore. One queue per name keeps the
   * order, and combines requests in one call.
   */
  inUse(semaphore) {
    const { name } = semaphore;
    const other = this.#inUse.get(name) ?? semaphore;
    const of = ({ limit, lease, maxHold, groupShare, groupCap }) =>
      `a limit of ${limit} and a lease of ${lease} ms`
      + (maxHold === undefined ? "" : `, held for at most ${maxHold} ms`)
      + (groupShare === 1 ? "" : `, a group share of ${groupShare}`)
      + (groupCap === undefined ? "" : `, a group cap of ${groupCap}`);
    if (of(other) === of(semaphore)) return other;
    throw new RangeError(`semaphore ${name} is in use with ${of(other)}, not with ${of(semaphore)}`);
  }

  use(semaphore) {
    this.#inUse.set(semaphore.name, semaphore);
  }

  unuse(semaphore) {
    if (this.#inUse.get(semaphore.name) === semaphore) this.#inUse.delete(semaphore.name);
  }

  /** Generates an ID for a request. If the request has a group, all later calls name all keys. */
  newId(semaphore, weight, group) {
    if (group) semaphore.hasGroups = true;
    return newId(this.#client, weight, semaphore.lease, group);
  }

  hold(id) {
    this.#held.add(id);
    this.begin();
  }

  /** Removes a permit that was released or lost. */
  drop(id) {
    if (this.#held.delete(id)) this.end();
    if (this.#held.size === 0) this.#drained();
  }

  wait(waiter, queue) {
    this.waiters.set(waiter.id, { waiter, queue });
    this.begin();
  }

  unwait(waiter) {
    if (this.waiters.delete(waiter.id)) this.end();
  }

  /**
   * Runs a script, and repeats the call with the source of the script, or with the keys for groups, if the server requires
   * this. In the result, `isEarly` is whether the call took effect before an earlier call of this semaphore, which is being
   * repeated.
   */
  async #run(semaphore, script, args, timeout) {
    const { name } = semaphore;
    const keys = keysOf(this.prefix, name);
    const call = { name, place: (this.#calls += 1) };
    try {
      for (let repeats = 0; ; repeats += 1) {
        const named = semaphore.hasGroups ? keys : keys.slice(0, WITHOUT_GROUPS);
        try {
          const called = await run(this.#connection, script, named, args, timeout);
          const isEarly = [...this.#repeating].some((other) => other.name === name && other.place < call.place);
          return { ...called, isEarly };
        } catch (error) {
          if (repeats === MOST_REPEATS || !this.#mustRepeat(error, semaphore)) throw error;
          this.#repeating.add(call);
        }
      }
    } finally {
      this.#repeating.delete(call);
    }
  }

  #mustRepeat(error, semaphore) {
    const hasGroups = error instanceof ErrorReply && error.message.startsWith("SEM_GROUPS");
    if (hasGroups) semaphore.hasGroups = true;
    return hasGroups || isNoScript(error);
  }

  async call(semaphore, script, args, timeout = this.responseTimeout) {
    try {
      const called = await this.#run(semaphore, script, args, timeout);
      if (isReply(script, args, called.reply)) return called;
      throw notRedis(`its reply to ${script} is no list with the right number of results`);
    } catch (error) {
      if (isOfReplica(error)) {
        // Another server may be the primary now.
        this.listener.reset(error);
        await this.#connection.reset(error);
      }
      throw named(error, this.#address, script);
    }
  }

  #handOff({ name, grants }) {
    for (const grant of grants) {
      const { waiter, queue } = this.waiters.get(grant.id) ?? {};
      if (queue?.name === name) queue.handedOff(waiter, grant);
      else if (!waiter && !this.#held.has(grant.id) && grant.token > 0) this.#giveBack(name, grant.id);
    }
  }

  /** Releases a permit without a waiter: the release of its request has overtaken the request. */
  #giveBack(name, id) {
    const lease = leaseOf(this.#client, id);
    if (lease === undefined || !isName(name)) return; // No script sent this message.
    const semaphore = this.#inUse.get(name) ?? new Semaphore(this, name, { limit: 0, lease });
    semaphore.giveBack(id, performance.now() + lease);
  }

  #askAgain() {
    for (const queue of new Set([...this.waiters.values()].map(({ queue }) => queue))) queue.askAgain();
  }

  #check() {
    const publish = (...args) => this.#connection.command(["PUBLISH", ...args], this.responseTimeout);
    this.listener.check(publish, this.responseTimeout).catch(() => {
      // The state of the subscription is unknown. The next call reports the failure of this connection.
    });
  }

  /** Releases an ID in the background. `close` waits for it. `call(args)` calls the script. */
  giveBack(name, id, until, call) {
    const releases = this.#releases.get(name) ?? new Releases(name, { patience: this.patience, call });
    this.#releases.set(name, releases);
    const release = releases.add(id, until);
    this.#underWay.add(release);
    this.begin();
    release.outcome.then(() => {
      this.#underWay.delete(release);
      if (releases.isEmpty && this.#releases.get(name) === releases) this.#releases.delete(name);
      this.end();
    });
    return release;
  }

  /** Sends all releases of a name now, so that they come before later requests. */
  flush(name) {
    this.#releases.get(name)?.flush();
  }

  /** Throws after `close`, because a new request would be left behind. */
  checkOpen() {
    if (this.#closing) throw new Closed();
  }

  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    this.begin();
    await undefined; // From now on, no new request may begin.
    for (const { waiter, queue } of [...this.waiters.values()]) queue.giveUp(waiter, new Closed());
    for (const semaphore of this.#inUse.values()) semaphore.stopRefreshing();
    if (this.#held.size > 0) await new Promise((resolve) => (this.#drained = resolve));
    const patience = new AbortController();
    const outcomes = [...this.#underWay].map(({ outcome }) => outcome);
    const released = Promise.all(outcomes).then(() => patience.abort());
    const tooLong = sleep(this.patience, undefined, { signal: patience.signal, ref: false }).catch(() => {});
    await Promise.race([released, tooLong]);
    await this.#disconnect();
    // Nothing would keep the process alive until the next attempt, so the remaining releases end.
    for (const release of this.#underWay) release.failed(new Closed());
    this.end();
    clearInterval(this.#checks);
  }

  async #disconnect() {
    this.listener.close();
    await this.#connection.close();
  }
}

module.exports = { Server };
