"use strict";

const { setMaxListeners } = require("node:events");

const checks = require("./checks");
const { AcquireTimeout, PermitLost } = require("./errors");
const { Lease } = require("./lease");
const { endBlock, Permit } = require("./permit");
const { Queue } = require("./queue");
const { AutoRefresh } = require("./auto-refresh");
const { Waiter } = require("./waiter");

/** A semaphore. Keep the object: it declares its limit once, and refreshes its permits together. */
class Semaphore {
  #server;
  #queue;
  #autoRefresh;

  constructor(server, name, options) {
    const known = ["limit", "lease", "maxHold", "groupShare", "groupCap"];
    const { limit, lease = 30_000, maxHold, groupShare = 1, groupCap } = checks.options("options of a semaphore", options, known);
    this.name = checks.name(name);
    this.limit = checks.limit(limit);
    this.lease = checks.milliseconds("lease", lease);
    this.maxHold = maxHold === undefined ? undefined : checks.milliseconds("maxHold", maxHold);
    this.groupShare = checks.share("groupShare", groupShare);
    this.groupCap = checks.cap("groupCap", groupCap, 1);
    this.#server = server;
    this.#queue = new Queue(server, {
      name,
      limit,
      lease,
      call: (script, args) => this.#call(script, args),
      granted: (waiter, token, since) => this.#granted(waiter, token, since),
      giveBack: (id, until) => this.giveBack(id, until),
    });
    this.#autoRefresh = new AutoRefresh((args, timeout) => this.#call("refresh", args, timeout), lease);
  }

  /** Waits in the queue for a permit. After the timeout or the signal, the request leaves the queue. */
  async acquire(options = {}) {
    const known = ["weight", "group", "timeout", "signal"];
    const { weight = 1, group, timeout, signal } = checks.options("options of acquire", options, known);
    if (timeout !== undefined) checks.timeout(timeout);
    const permit = await this.#ask({ weight, group, timeout, signal, mayQueue: !(timeout <= 0) });
    if (!permit) throw new AcquireTimeout(this.name, timeout);
    return permit;
  }

  /** Resolves to a permit, or to null if none is free or other requests wait. */
  async tryAcquire(options = {}) {
    const { weight = 1, group, signal } = checks.options("options of tryAcquire", options, ["weight", "group", "signal"]);
    return this.#ask({ weight, group, signal, mayQueue: false });
  }

  async #ask(request) {
    const { weight, timeout, signal, mayQueue } = request;
    checks.weight(weight);
    const group = checks.group(request.group, weight, this);
    checks.signal(signal);
    this.#server.checkOpen();
    signal?.throwIfAborted();
    if (signal) setMaxListeners(0, signal); // Any number of waits may share a signal.
    const inUse = this.#server.inUse(this);
    if (inUse !== this) return inUse.#ask(request);
    this.#server.use(this);
    const waiter = new Waiter({ id: this.#server.newId(this, weight, group), weight, mayQueue });
    const abort = () => this.#queue.giveUp(waiter, signal.reason);
    const patience = mayQueue ? timeout && Math.ceil(timeout) : this.#server.patience;
    const timer = patience && setTimeout(() => this.#queue.timedOut(waiter, timeout), patience).unref();
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

  /** Lets another object use the name if no request waits and no permit is held. */
  #checkUse() {
    if (this.#queue.isEmpty && this.#autoRefresh.isEmpty) this.#server.unuse(this);
  }

  /**
   * Calls the callback with a permit, and releases the permit afterwards. Rejects with PermitLost if the permit was lost in
   * the meantime, because the end of the work was not protected.
   */
  async use(callback, options) {
    checks.callback(callback);
    const permit = await this.acquire(options);
    let result;
    try {
      result = await callback(permit);
    } catch (error) {
      await endBlock(permit);
      throw error;
    }
    if (await endBlock(permit)) return result;
    permit.lost.throwIfAborted();
    throw new PermitLost(this.name, permit.id, "the server did not know it when it was released");
  }

  async #call(script, args, timeout) {
    const answer = await this.#server.call(this, script, args, timeout);
    const [, wakeIn] = answer.reply;
    // The replies to acquire and wake are handled in the queue, because requests may wait.
    if (wakeIn === 0 && script !== "acquire" && script !== "wake") this.#queue.planWake(wakeIn);
    return answer;
  }

  #granted(waiter, token, since) {
    const lease = new Lease(this.name, waiter.id, since, this.lease, this.maxHold);
    this.#server.hold(waiter.id);
    const end = () => {
      waiter.isOver = true;
      lease.stop();
      this.#autoRefresh.remove(lease);
      this.#checkUse();
      // A refresh without a reply may arrive late, and hold the permit for another lease.
      const release = this.giveBack(waiter.id, performance.now() + this.lease);
      this.#server.drop(waiter.id);
      return release;
    };
    lease.onLost = end;
    this.#autoRefresh.add(lease);
    lease.watch();
    const giveBack = () => (lease.check() ? end() : undefined);
    return new Permit({ lease, token, weight: waiter.weight, giveBack });
  }

  giveBack(id, until) {
    this.#queue.flush();
    return this.#server.giveBack(this.name, id, until, (args) => this.#call("release", args));
  }

  stopRefreshing() {
    this.#autoRefresh.stop();
  }
}

module.exports = { Semaphore };
