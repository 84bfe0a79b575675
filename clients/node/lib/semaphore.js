"use strict";

const checks = require("./checks");
const { Closed, LeaseLost } = require("./errors");
const { Lease } = require("./lease");
const { Permit } = require("./permit");
const { Queue } = require("./queue");
const { Releases } = require("./releases");
const { Renewal } = require("./renewal");
const { Waiter } = require("./waiter");

/** A semaphore by its name. Keep it: it declares its limit once, and renews its permits together. */
class Semaphore {
  #server;
  #queue;
  #renewal;
  #releases;
  #declared;

  constructor(server, name, { limit, lease = 30_000 }) {
    this.name = checks.name(name);
    this.limit = checks.limit(limit);
    this.lease = checks.milliseconds("lease", lease);
    this.#server = server;
    this.#queue = new Queue(server, {
      name,
      limit,
      lease,
      call: (script, args) => this.#call(script, args),
      declare: () => this.#declare(),
      granted: (waiter, token, since) => this.#granted(waiter, token, since),
      giveBack: (id, until) => this.#giveBack(id, until),
    });
    this.#renewal = new Renewal((args, timeout) => this.#call("refresh", args, timeout), lease);
    this.#releases = new Releases(name, (args) => this.#call("release", args));
  }

  /** Waits in the queue for a permit. What is given up, by timeout or signal, leaves the queue. */
  async acquire({ weight = 1, timeout, signal } = {}) {
    if (timeout !== undefined) checks.milliseconds("timeout", timeout);
    return this.#ask({ weight, timeout, signal, mayQueue: true });
  }

  /** A permit if there is room and nobody waits, else null. */
  async tryAcquire({ weight = 1, signal } = {}) {
    return this.#ask({ weight, signal, mayQueue: false });
  }

  async #ask(request) {
    const { weight, timeout, signal, mayQueue } = request;
    checks.weight(weight);
    this.#server.checkOpen();
    signal?.throwIfAborted();
    const inUse = this.#server.inUse(this);
    if (inUse !== this) return inUse.#ask(request);
    this.#server.use(this);
    const waiter = new Waiter({ id: this.#server.newId(), weight, mayQueue });
    const abort = () => this.#queue.giveUp(waiter, signal.reason);
    const timer = timeout && setTimeout(() => this.#queue.timedOut(waiter, timeout), timeout);
    signal?.addEventListener("abort", abort, { once: true });
    try {
      this.#queue.add(waiter);
      return await waiter.outcome;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      this.#checkUse();
    }
  }

  /** Nothing waits and nothing is held: another object may have the name. */
  #checkUse() {
    if (this.#queue.isEmpty && this.#renewal.isEmpty) this.#server.unuse(this);
  }

  /**
   * Calls back with a permit and gives it back afterwards. Where the permit was lost meanwhile it
   * throws LeaseLost: what the callback did was not protected to its end.
   */
  async use(callback, options) {
    const permit = await this.acquire(options);
    let result;
    try {
      result = await callback(permit);
    } catch (error) {
      // The callback's error is the one to tell; this one must not hide it.
      await permit.release().catch((failure) => process.emitWarning(failure));
      throw error;
    }
    if (await permit.release()) return result;
    permit.lost.throwIfAborted();
    throw new LeaseLost(this.name, permit.id, "the server did not know it any more when it was given back");
  }

  async #call(script, args, timeout) {
    const answer = await this.#server.call(this.name, script, args, timeout);
    const [, wakeIn] = answer.reply;
    // Who waits plans more: the replies of acquire and wake tell when.
    if (wakeIn === 0 && script !== "acquire" && script !== "wake") this.#queue.planWake(wakeIn);
    return answer;
  }

  async #declare() {
    this.#declared ??= this.#call("limit", ["declare", this.limit]).then(({ reply }) => {
      const before = reply[5];
      if (before === -1 || before === this.limit) return;
      process.emitWarning(
        `semaphore ${this.name}: another client declared a limit of ${before}; now ${this.limit} is in force`,
      );
    });
    try {
      await this.#declared;
    } catch (error) {
      this.#declared = undefined;
      throw error;
    }
  }

  #granted(waiter, token, since) {
    const lease = new Lease(this.name, waiter.id, since, this.lease);
    const end = () => {
      waiter.isOver = true;
      lease.stop();
      this.#renewal.remove(lease);
      this.#checkUse();
      // A refresh without an answer may arrive late, and hold it for another lease.
      return this.#giveBack(waiter.id, performance.now() + this.lease);
    };
    const lost = () => end().catch((error) => error instanceof Closed || process.emitWarning(error));
    lease.lost.addEventListener("abort", lost, { once: true });
    this.#renewal.add(lease);
    lease.watch();
    const giveBack = async () => lease.check() && end();
    return new Permit({ lease, token, weight: waiter.weight, giveBack });
  }

  #giveBack(id, until) {
    return this.#server.track(this.#releases.add(id, until));
  }
}

module.exports = { Semaphore };
