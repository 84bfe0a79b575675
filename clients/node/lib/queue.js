"use strict";

const { AcquireTimeout, failure, isPassing, says, SemaphoreError, TooHeavy, Unavailable, warn } = require("./errors");
const { Pauses } = require("./pauses");
const { Waiter } = require("./waiter");

const MOST = 1000;
const [REFUSED, GRANTED, QUEUED, ALL_GRANTED] = [0, 1, 2, 3];
/** Of the IDs, which argument is the first one. */
const FIRST_WORD = 4;
/** For one acquire. A few may come of a process that was busy for once. */
const MOST_LATE_GRANTS = 5;
/** Of a timer, which fires at once where it is more. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** What one semaphore asks for: new requests, and again all that wait in the server's queue. */
class Queue {
  #server;
  #semaphore;
  #toAsk = new Set();
  #waiters = new Set();
  #isRunning = false;
  #isDeclared = false;
  #round;
  #wakeTimer;
  /** When that timer is due. */
  #wakeAt = Infinity;

  /** The semaphore says its limit and lease, makes calls, and has what becomes of a grant. */
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
   * All that the server may have queued, also where its reply is under way: after each new subscription,
   * and a third of the heartbeat timeout.
   */
  askAgain() {
    this.#ask([...this.#waiters].filter(({ isSent }) => isSent));
  }

  async #run() {
    this.#isRunning = true;
    const pauses = new Pauses();
    await undefined; // What is asked for in one go is one call.
    while (this.#toAsk.size > 0) {
      const mustPause = await this.#send(this.#take([...this.#toAsk]), pauses.since);
      if (mustPause) await pauses.next();
      else pauses.reset();
    }
    this.#isRunning = false;
  }

  /**
   * Sends now what waits for the end of a call: what the program gives back next comes after what it has asked for
   * before.
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

  /** Answers whether to pause before the next call. All have failed since `since`. */
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
    this.#server.flush(this.name); // That was given back before these were asked for.
    const { reply, sent } = await this.#semaphore.call("acquire", args);
    const [, , before] = reply;
    if (!this.#isDeclared && before !== -1 && before !== limit) {
      process.emitWarning(`semaphore ${this.name}: another limit of ${before} was declared; now ${limit} is in force`);
    }
    this.#isDeclared = true;
    this.#heed(batch, reply, sent);
  }

  #heed(asked, [serverTime, wakeIn, , ...rest], sent) {
    const allGranted = rest[0] === ALL_GRANTED;
    let isAnyQueued = false;
    asked.forEach((waiter, index) => {
      const [kind, number, position] = allGranted ? [GRANTED, rest[1] + index] : rest.slice(3 * index, 3 * index + 3);
      isAnyQueued ||= kind === QUEUED;
      if (waiter.isOver && kind !== REFUSED) this.#giveBack(waiter); // This may have overtaken its release.
      if (!waiter.isWaiting) return; // Or a message has overtaken this reply.
      if (kind === GRANTED && this.#isLate(sent)) this.#grantedLate(waiter);
      else if (kind === GRANTED) this.#granted(waiter, number, sent);
      else if (kind === QUEUED) waiter.queued(number, position, sent, serverTime);
      else if (wakeIn === 0) this.#ask([waiter]); // The script stopped at a bound: again, after `wake`.
      else this.#settle(waiter, () => waiter.resolve(null));
    });
    if (asked.some(({ isWaiting }) => isWaiting)) this.#planRound();
    if (wakeIn === 0 || (isAnyQueued && !this.isEmpty)) this.planWake(wakeIn);
  }

  /** All calls have failed since then. Answers whether to pause before the next one. */
  #failed(batch, error, since) {
    const waiting = batch.filter(({ isWaiting }) => isWaiting);
    const tooHeavy = /SEM_TOO_HEAVY ARGV\[(\d+)\] \(id\) weighs \d+, the limit is (\d+)/.exec(error.message);
    if (tooHeavy) {
      // The whole call was refused: ask for the others without it.
      const [argument, limit] = tooHeavy.slice(1).map(Number);
      const heavy = batch[(argument - FIRST_WORD) / 2];
      this.giveUp(heavy, new TooHeavy(this.name, heavy.weight, limit));
      this.#ask(waiting.filter((waiter) => waiter !== heavy));
      return false;
    }
    // A server whose memory is full refuses even to repeat a place in the queue.
    const mayPass = (waiter) => isPassing(error) || (waiter.ticket && says(error, "OOM"));
    for (const waiter of waiting) {
      waiter.failure = error;
      if (!mayPass(waiter)) {
        this.giveUp(waiter, failure(this.name, "acquire", error));
      } else if (performance.now() - Math.max(waiter.since, since) > this.#server.outageTolerance) {
        this.giveUp(waiter, new Unavailable(this.name, "acquire", error));
      } else {
        this.#toAsk.add(waiter);
      }
    }
    return waiting.some(mayPass);
  }

  /** By a message: it may be old, or of a permit of the past. */
  handedOff(waiter, { token, end }) {
    if (token === 0) return this.#ask([waiter]); // It became too heavy: the reply tells.
    if (end - this.#semaphore.lease < waiter.queuedAt) return;
    if (this.#isLate(waiter.since)) return this.#ask([waiter]);
    this.#granted(waiter, token, waiter.since);
  }

  /**
   * Where half of the lease has passed since it was surely not granted yet, ask again: that starts the
   * lease of a permit anew, and else takes the old place in the queue.
   */
  #isLate(since) {
    return performance.now() - since >= this.#semaphore.lease / 2;
  }

  /** Where all replies take that long, asking again would never end. */
  #grantedLate(waiter) {
    waiter.lateGrants += 1;
    if (waiter.lateGrants < MOST_LATE_GRANTS) return this.#ask([waiter]);
    const { name, lease } = this.#semaphore;
    const what = `half of the lease of ${lease} ms had passed each time before the reply to acquire came`;
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

  /** A try that has no answer by then will hardly get one. */
  timedOut(waiter, timeout) {
    const error = waiter.mayQueue
      ? new AcquireTimeout(this.name, timeout, waiter.position)
      : failure(this.name, "acquire", waiter.failure);
    this.giveUp(waiter, error);
  }

  /** In the background. When even a permit granted at the last moment has ended, nothing is left. */
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
      // The reply plans the next one; where none comes, the call is repeated until one does.
    }, this.#server.askInterval).unref();
  }

  /**
   * The latest reply that says "queued", or to `wake`, decides when this client calls `wake`, or that it does not: the
   * server chooses who does. It replaces what an earlier reply has planned, unless that is due.
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
    // After that asking again, which goes on meanwhile, serves the queue as well.
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
