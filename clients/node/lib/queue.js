"use strict";

const { AcquireTimeout, failure, isPassing, says, SemaphoreError, TooHeavy, Unavailable, warn } = require("./errors");
const { Pauses } = require("./pauses");
const { Waiter } = require("./waiter");

const MOST = 1000;
const [REFUSED, GRANTED, QUEUED, ALL_GRANTED] = [0, 1, 2, 3];
/** Of the words, which argument is the first one. */
const FIRST_WORD = 4;
/** So that of a thousand waiting processes only the first few call `wake`. */
const DELAY_BY_POSITION = 20;
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
    this.#server.waiters.set(waiter.word, { waiter, queue: this });
    this.#ask([waiter]);
  }

  #ask(waiters) {
    for (const waiter of waiters) this.#toAsk.add(waiter);
    if (!this.#isRunning) this.#run();
  }

  /**
   * All that the server may have queued, also where its reply is under way: after each new subscription,
   * and a third of the liveness time.
   */
  askAgain() {
    this.#ask([...this.#waiters].filter(({ isSent }) => isSent));
  }

  async #run() {
    this.#isRunning = true;
    const pauses = new Pauses();
    await undefined; // What is asked for in one go is one call.
    while (this.#toAsk.size > 0) {
      const batch = [...this.#toAsk].sort(Waiter.compare).slice(0, MOST);
      for (const waiter of batch) this.#toAsk.delete(waiter);
      try {
        if (batch.some(({ mayQueue }) => mayQueue)) this.#server.listener.mustListen();
        await this.#acquire(batch);
        pauses.reset();
      } catch (error) {
        if (this.#failed(batch, error, pauses.since ?? performance.now())) await pauses.next();
      }
    }
    this.#isRunning = false;
  }

  async #acquire(batch) {
    const { limit, lease } = this.#semaphore;
    const args = [this.#isDeclared ? "declared" : "declare", limit, this.#server.liveness];
    for (const waiter of batch) {
      waiter.isSent = true;
      args.push(waiter.word, waiter.place);
    }
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
    asked.forEach((waiter, index) => {
      const [kind, number, position] = allGranted ? [GRANTED, rest[1] + index] : rest.slice(3 * index, 3 * index + 3);
      if (waiter.isOver && kind !== REFUSED) this.#giveBack(waiter); // This may have overtaken its release.
      if (!waiter.isWaiting) return; // Or a message has overtaken this reply.
      if (kind === GRANTED && this.#isLate(sent)) this.#grantedLate(waiter);
      else if (kind === GRANTED) this.#granted(waiter, number, sent);
      else if (kind === QUEUED) waiter.queued(number, position, sent, serverTime);
      else if (wakeIn === 0) this.#ask([waiter]); // The script stopped at a bound: again, after `wake`.
      else this.#settle(waiter, () => waiter.resolve(null));
    });
    const mustWait = asked.some(({ isWaiting }) => isWaiting);
    if (mustWait) this.#planRound();
    if (mustWait || wakeIn === 0) this.planWake(wakeIn);
  }

  /** All calls have failed since then. Answers whether to pause before the next one. */
  #failed(batch, error, since) {
    const waiting = batch.filter(({ isWaiting }) => isWaiting);
    const tooHeavy = /SEM_TOO_HEAVY ARGV\[(\d+)\] \(word\) weighs \d+, the limit is (\d+)/.exec(error.message);
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
    const until = performance.now() + this.#server.liveness + this.#semaphore.lease;
    this.#semaphore.giveBack(waiter.word, until);
  }

  #settle(waiter, tell) {
    waiter.isWaiting = false;
    this.#waiters.delete(waiter);
    this.#toAsk.delete(waiter);
    this.#server.waiters.delete(waiter.word);
    if (this.#waiters.size === 0) {
      clearTimeout(this.#round);
      clearTimeout(this.#wakeTimer);
      this.#round = undefined;
    }
    tell();
  }

  #planRound() {
    this.#round ??= setTimeout(() => {
      this.#round = undefined;
      this.askAgain();
      // The reply plans the next one; where none comes, the call is repeated until one does.
    }, this.#server.askInterval);
  }

  /** The script says when a lease ends, so that `wake` may have something to hand off. */
  planWake(wakeIn) {
    if (wakeIn < 0) return; // What an earlier reply has planned stays.
    clearTimeout(this.#wakeTimer);
    if (wakeIn === 0) return this.#wake();
    let first = Infinity;
    for (const { position } of this.#waiters) if (position < first) first = position;
    const delay = DELAY_BY_POSITION * (first - 1);
    if (delay >= this.#server.askInterval) return; // Asking again comes first.
    this.#wakeTimer = setTimeout(() => this.#wake(), Math.min(wakeIn + delay, LONGEST_TIMER));
  }

  async #wake() {
    const pauses = new Pauses();
    const end = performance.now() + this.#server.outageTolerance;
    // After that asking again, which goes on meanwhile, serves the queue as well.
    for (; performance.now() < end; await pauses.next()) {
      try {
        const { reply } = await this.#semaphore.call("wake", []);
        const [, wakeIn] = reply;
        if (this.#waiters.size > 0 || wakeIn === 0) this.planWake(wakeIn);
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
