"use strict";

const {
  AcquireTimeout, changedNothing, failure, isFull, isPassing, SemaphoreError, TooHeavy, Unavailable, warn,
} = require("./errors");
const { Pauses } = require("./pauses");
const { Waiter } = require("./waiter");

const MOST = 1000;
const [REFUSED, GRANTED, QUEUED, ALL_GRANTED] = [0, 1, 2, 3];
/** The index of the first ID in the arguments. */
const FIRST_WORD = 4;
/** The largest number of late grants per acquire. A busy process may cause a few late grants. */
const MOST_LATE_GRANTS = 5;
/** A timer with a longer time fires immediately. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** The requests of one semaphore: it sends new ones, and heartbeats for those in the server's queue. */
class Queue {
  #server;
  #semaphore;
  #toAsk = new Set();
  #waiters = new Set();
  #isRunning = false;
  #isDeclared = false;
  #round;
  #wakeTimer;
  /** When #wakeTimer is due. */
  #wakeAt = Infinity;

  /** `semaphore` has the limit and the lease, makes calls, and creates permits. */
  constructor(server, semaphore) {
    this.#server = server;
    this.#semaphore = semaphore;
  }

  get name() {
    return this.#semaphore.name;
  }

  get isEmpty() {
    return this.#waiters.size === 0;
  }

  add(waiter) {
    this.#waiters.add(waiter);
    this.#server.wait(waiter, this);
    this.#ask([waiter]);
  }

  #ask(waiters) {
    for (const waiter of waiters) this.#toAsk.add(waiter);
    if (!this.#isRunning) this.#run();
  }

  /**
   * Sends a heartbeat for all requests that the server may have queued, even if the reply has not arrived: after each
   * new subscription, and in each third of the heartbeat timeout.
   */
  askAgain() {
    this.#ask([...this.#waiters].filter(({ isSent }) => isSent));
  }

  async #run() {
    this.#isRunning = true;
    const pauses = new Pauses();
    await undefined; // Simultaneous requests share one call.
    while (this.#toAsk.size > 0) {
      const mustPause = await this.#send(this.#take([...this.#toAsk]), pauses.since);
      if (mustPause) await pauses.next();
      else pauses.reset();
    }
    this.#isRunning = false;
  }

  /**
   * Sends the unsent requests now, without waiting for the end of the current call. So they come before later releases
   * of the program.
   */
  flush() {
    if (this.#toAsk.size === 0) return;
    for (let unsent; (unsent = [...this.#toAsk].filter(({ isSent }) => !isSent)).length > 0; ) {
      this.#send(this.#take(unsent)).then(() => this.#isRunning || this.#toAsk.size === 0 || this.#run());
    }
  }

  #take(waiters) {
    const batch = waiters.sort(Waiter.compare).slice(0, MOST);
    for (const waiter of batch) this.#toAsk.delete(waiter);
    return batch;
  }

  /** Returns whether to pause before the next call. All calls have failed since `since`. */
  async #send(batch, since) {
    try {
      await this.#acquire(batch);
      return false;
    } catch (error) {
      return this.#failed(batch, error, since ?? performance.now());
    }
  }

  async #acquire(batch) {
    const { limit, lease } = this.#semaphore;
    const args = [this.#isDeclared ? "declare_if_unset" : "declare", limit, this.#server.heartbeatTimeout];
    if (batch.some(({ mayQueue }) => mayQueue)) this.#server.listener.mustListen();
    for (const waiter of batch) {
      waiter.isSent = true;
      args.push(waiter.id, waiter.waitMode);
    }
    this.#server.flush(this.name); // The program made these releases before these requests.
    const answer = await this.#semaphore.call("acquire", args);
    const [, , before] = answer.reply;
    if (!this.#isDeclared && before !== -1 && before !== limit) {
      process.emitWarning(`semaphore ${this.name}: the limit ${limit} replaces the declared limit ${before}`);
    }
    this.#isDeclared = true;
    this.#heed(batch, answer);
  }

  #heed(asked, { reply: [serverTime, wakeIn, , ...rest], sent, isEarly }) {
    const allGranted = rest[0] === ALL_GRANTED;
    let isAnyQueued = false;
    asked.forEach((waiter, index) => {
      const [kind, number, position] = allGranted ? [GRANTED, rest[1] + index] : rest.slice(3 * index, 3 * index + 3);
      isAnyQueued ||= kind === QUEUED;
      if (waiter.isOver && kind !== REFUSED) this.#giveBack(waiter); // The release may have overtaken the request.
      if (!waiter.isWaiting) return; // A message may have overtaken this reply.
      if (kind === GRANTED && this.#isLate(sent)) this.#grantedLate(waiter);
      else if (kind === GRANTED) this.#granted(waiter, number, sent);
      else if (kind === QUEUED) waiter.queued(number, position, sent, serverTime);
      // The script has more work: send it again, after `wake`. Or an earlier release has not taken effect yet.
      else if (wakeIn === 0 || isEarly) this.#ask([waiter]);
      else this.#settle(waiter, () => waiter.resolve(null));
    });
    if (asked.some(({ isWaiting }) => isWaiting)) this.#planRound();
    if (wakeIn === 0 || (isAnyQueued && !this.isEmpty)) this.planWake(wakeIn);
  }

  /** Handles a failure. All calls have failed since `since`. Returns whether to pause before the next call. */
  #failed(batch, error, since) {
    const waiting = batch.filter(({ isWaiting }) => isWaiting);
    const tooHeavy = /SEM_TOO_HEAVY ARGV\[(\d+)\] \(id\) weighs \d+, the limit is (\d+)/.exec(error.message);
    if (tooHeavy) {
      // The server rejected the whole call, so this sends the other requests without the heavy one.
      const [argument, limit] = tooHeavy.slice(1).map(Number);
      const heavy = batch[(argument - FIRST_WORD) / 2];
      this.giveUp(heavy, new TooHeavy(this.name, heavy.weight, limit));
      this.#ask(waiting.filter((waiter) => waiter !== heavy));
      return false;
    }
    // A server whose memory or disk is full rejects even heartbeats.
    const mayPass = (waiter) => isPassing(error) || (waiter.ticket && isFull(error));
    for (const waiter of waiting) {
      waiter.failure = error;
      waiter.mayBeKnown ||= Boolean(waiter.ticket) || waiter.lateGrants > 0 || !changedNothing(error);
      if (!mayPass(waiter)) {
        waiter.isSent = waiter.mayBeKnown; // Otherwise, there is nothing to release.
        this.giveUp(waiter, failure(this.name, "acquire", error));
      } else if (performance.now() - Math.max(waiter.since, since) > this.#server.outageTolerance) {
        this.giveUp(waiter, new Unavailable(this.name, "acquire", error));
      } else {
        this.#toAsk.add(waiter);
      }
    }
    return waiting.some(mayPass);
  }

  /** Handles a grant message, which may be stale. */
  handedOff(waiter, { token, end }) {
    if (token === 0) return this.#ask([waiter]); // The limit may be too low now. The reply to acquire has the reason.
    if (end - this.#semaphore.lease < waiter.queuedAt) return;
    if (this.#isLate(waiter.since)) return this.#ask([waiter]);
    this.#granted(waiter, token, waiter.since);
  }

  /**
   * Returns whether half of the lease may be over. If so, another acquire restarts the lease, or returns the request
   * to its position in the queue.
   */
  #isLate(since) {
    return performance.now() - since >= this.#semaphore.lease / 2;
  }

  /** Limits the number of late grants. Without a limit, retries would never end if all replies are late. */
  #grantedLate(waiter) {
    waiter.lateGrants += 1;
    if (waiter.lateGrants < MOST_LATE_GRANTS) return this.#ask([waiter]);
    const { name, lease } = this.#semaphore;
    const what = `half of the lease of ${lease} ms was over each time before the reply to acquire arrived`;
    this.giveUp(waiter, new SemaphoreError(`semaphore ${name}: ${what}: use a longer lease`));
  }

  #granted(waiter, token, since) {
    this.#settle(waiter, () => waiter.resolve(this.#semaphore.granted(waiter, token, since)));
  }

  giveUp(waiter, error) {
    if (!waiter.isWaiting) return;
    waiter.isOver = true;
    this.#settle(waiter, () => waiter.reject(error));
    if (waiter.isSent) this.#giveBack(waiter);
  }

  /** Ends a request after its timeout. */
  timedOut(waiter, timeout) {
    const error = waiter.mayQueue
      ? new AcquireTimeout(this.name, timeout, waiter.position, waiter.failure)
      : failure(this.name, "acquire", waiter.failure);
    this.giveUp(waiter, error);
  }

  /** Releases a request in the background, until even a permit that was granted at the last moment has expired. */
  #giveBack(waiter) {
    const until = performance.now() + this.#server.heartbeatTimeout + this.#semaphore.lease;
    this.#semaphore.giveBack(waiter.id, until);
  }

  #settle(waiter, tell) {
    waiter.isWaiting = false;
    this.#waiters.delete(waiter);
    this.#toAsk.delete(waiter);
    this.#server.unwait(waiter);
    if (this.#waiters.size === 0) {
      clearTimeout(this.#round);
      clearTimeout(this.#wakeTimer);
      this.#wakeAt = Infinity;
      this.#round = undefined;
    }
    tell();
    waiter.forget();
  }

  #planRound() {
    this.#round ??= setTimeout(() => {
      this.#round = undefined;
      this.askAgain();
      // The reply plans the next round. Without a reply, the call is retried.
    }, this.#server.askInterval).unref();
  }

  /**
   * Plans the next `wake` by the latest reply "queued", or by the reply to `wake`. The server chooses the client that
   * calls `wake`. The new plan replaces an earlier plan, unless the earlier plan is due.
   */
  planWake(wakeIn) {
    if (wakeIn < 0 && performance.now() >= this.#wakeAt) return;
    clearTimeout(this.#wakeTimer);
    this.#wakeAt = wakeIn > 0 ? performance.now() + wakeIn : Infinity;
    if (wakeIn === 0) this.#wake();
    if (wakeIn > 0) this.#wakeTimer = setTimeout(() => this.#wake(), Math.min(wakeIn, LONGEST_TIMER)).unref();
  }

  async #wake() {
    this.#wakeAt = Infinity;
    this.#server.begin();
    await this.#callWake();
    this.#server.end();
  }

  async #callWake() {
    const pauses = new Pauses();
    const end = performance.now() + this.#server.outageTolerance;
    // The heartbeats continue during and after this loop, and serve the queue as well.
    for (; performance.now() < end; await pauses.next()) {
      try {
        const { reply } = await this.#semaphore.call("wake", []);
        const [, wakeIn] = reply;
        if (!this.isEmpty || wakeIn === 0) this.planWake(wakeIn);
        return;
      } catch (error) {
        if (isPassing(error)) continue;
        warn(error);
        return;
      }
    }
  }
}

module.exports = { Queue };
