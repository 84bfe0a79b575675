"use strict";

const { Closed, failure, isPassing, warn } = require("./errors");
const { Pauses } = require("./pauses");

const MOST = 1000;
const [UNKNOWN, ALL_HELD] = [0, 3];

/** An ID that is given back, until that is confirmed or nothing of it is left. */
class Release {
  #semaphore;
  #until;
  #patience;
  /** Why the last call failed. */
  #error;
  /** A call without an answer may have done it: then "unknown" does not say "lost". */
  isRepeated = false;
  /** Whether the server still knew it. Undefined where that was never confirmed. */
  outcome = new Promise((resolve) => (this.settle = resolve));

  constructor(semaphore, until, patience) {
    this.#semaphore = semaphore;
    this.#until = until;
    this.#patience = patience;
  }

  /** What the outcome is. Where it does not come in time this rejects, and the release goes on. */
  async confirmed() {
    let timer;
    const tooLong = new Promise((resolve) => (timer = setTimeout(resolve, this.#patience).unref()));
    const wasKnown = await Promise.race([this.outcome, tooLong]);
    clearTimeout(timer);
    if (wasKnown === undefined) throw failure(this.#semaphore, "release", this.#error);
    return wasKnown;
  }

  /** Answers whether to try again. */
  failed(error) {
    this.#error = error;
    this.isRepeated ||= isPassing(error);
    const isOver = error instanceof Closed || performance.now() >= this.#until;
    if (isOver) this.settle();
    return !isOver;
  }
}

/** Gives IDs of one name back until that is confirmed, or until they are gone by themselves. */
class Releases {
  #semaphore;
  #patience;
  #call;
  /** By their IDs. */
  #waiting = new Map();
  #isRunning = false;
  /** Calls without an answer yet. */
  #calls = 0;
  #pauses = new Pauses(1000);
  #isTold = false;

  /** `call(args)` calls the script; `patience` is that of who waits for it to be confirmed. */
  constructor(semaphore, { patience, call }) {
    this.#semaphore = semaphore;
    this.#patience = patience;
    this.#call = call;
  }

  get isEmpty() {
    return this.#waiting.size === 0 && this.#calls === 0;
  }

  /** At `until` nothing of the ID is left. */
  add(id, until) {
    const release = new Release(this.#semaphore, until, this.#patience);
    this.#put(id, [release]);
    this.#run();
    return release;
  }

  /** An ID is in a call once, also one that is given back twice. */
  #put(id, releases) {
    this.#waiting.set(id, [...(this.#waiting.get(id) ?? []), ...releases]);
  }

  /** One call after the other, each with what was given back meanwhile. */
  async #run(isRetry = false) {
    if (this.#isRunning) return;
    this.#isRunning = true;
    await (isRetry ? this.#pauses.next() : undefined); // What is given back in one go is one call.
    while (this.#waiting.size > 0) if (!(await this.#send())) await this.#pauses.next();
    this.#isRunning = false;
  }

  /**
   * Sends now what waits for the end of a call: what the program asks for next comes after what it has given back
   * before.
   */
  flush() {
    while (this.#waiting.size > 0) {
      this.#send().then((isDone) => isDone || this.#run(true));
    }
  }

  /** Answers whether the call was answered. */
  async #send() {
    const batch = [...this.#waiting].slice(0, MOST);
    for (const [id] of batch) this.#waiting.delete(id);
    this.#calls += 1;
    try {
      const { reply } = await this.#call(["return", ...batch.map(([id]) => id)]);
      batch.forEach(([, releases], index) => settle(releases, reply[2] === ALL_HELD ? ALL_HELD : reply[2 + index]));
      this.#pauses.reset();
      this.#isTold = false;
      return true;
    } catch (error) {
      if (!this.#isTold && !isPassing(error)) {
        warn(failure(this.#semaphore, "release", error));
        this.#isTold = true; // Once: it may go on for days.
      }
      this.#failed(batch, error);
      return false;
    } finally {
      this.#calls -= 1;
    }
  }

  #failed(batch, error) {
    for (const [id, releases] of batch) {
      const left = releases.filter((release) => release.failed(error));
      if (left.length > 0) this.#put(id, left);
    }
  }
}

function settle(releases, answer) {
  const wasKnown = answer !== UNKNOWN || releases.some(({ isRepeated }) => isRepeated);
  for (const release of releases) release.settle(wasKnown);
}

module.exports = { Releases };
