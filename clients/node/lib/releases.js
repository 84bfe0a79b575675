"use strict";

const { Closed, failure, isPassing, isRejection, warn } = require("./errors");
const { Pauses } = require("./pauses");

const MOST = 1000;
const [UNKNOWN, ALL_HELD] = [0, 3];

/** The release of an ID, until Redis has confirmed it, or the permit has expired. */
class Release {
  #semaphore;
  #until;
  #patience;
  /** Why the last call failed. */
  #error;
  /** A call without a reply may have released it. Then "unknown" does not mean "lost". */
  isRepeated = false;
  /** Whether the server knew the ID. Undefined if Redis never confirmed the release. */
  outcome = new Promise((resolve) => (this.settle = resolve));

  constructor(semaphore, until, patience) {
    this.#semaphore = semaphore;
    this.#until = until;
    this.#patience = patience;
  }

  /** Resolves to the outcome. If the confirmation takes too long, this rejects, and the release continues. */
  async confirmed() {
    let timer;
    const tooLong = new Promise((resolve) => (timer = setTimeout(resolve, this.#patience).unref()));
    const wasKnown = await Promise.race([this.outcome, tooLong]);
    clearTimeout(timer);
    if (wasKnown === undefined) throw failure(this.#semaphore, "release", this.#error);
    return wasKnown;
  }

  /** Returns whether to retry. */
  failed(error) {
    this.#error = error;
    this.isRepeated ||= isPassing(error) && !isRejection(error);
    const isOver = error instanceof Closed || performance.now() >= this.#until;
    if (isOver) this.settle();
    return !isOver;
  }
}

/** Releases IDs of one name. Repeats each release until Redis has confirmed it, or the permit has expired. */
class Releases {
  #semaphore;
  #patience;
  #call;
  /** Releases by ID. */
  #waiting = new Map();
  #isRunning = false;
  /** The number of calls without a reply. */
  #calls = 0;
  #pauses = new Pauses(1000);
  #isTold = false;

  /** `call(args)` calls the script. `patience` is how long `confirmed` waits. */
  constructor(semaphore, { patience, call }) {
    this.#semaphore = semaphore;
    this.#patience = patience;
    this.#call = call;
  }

  get isEmpty() {
    return this.#waiting.size === 0 && this.#calls === 0;
  }

  /** Releases an ID, whose permit has expired by `until`. */
  add(id, until) {
    const release = new Release(this.#semaphore, until, this.#patience);
    this.#put(id, [release]);
    this.#run();
    return release;
  }

  /** Adds releases of an ID. Each call contains an ID only once. */
  #put(id, releases) {
    this.#waiting.set(id, [...(this.#waiting.get(id) ?? []), ...releases]);
  }

  /** Sends one call after another, each with all releases since the previous one. */
  async #run(isRetry = false) {
    if (this.#isRunning) return;
    this.#isRunning = true;
    await (isRetry ? this.#pauses.next() : undefined); // Simultaneous releases share one call.
    while (this.#waiting.size > 0) if (!(await this.#send())) await this.#pauses.next();
    this.#isRunning = false;
  }

  /**
   * Sends all releases now, without waiting for the end of the current call. So they come before later requests of the
   * program.
   */
  flush() {
    while (this.#waiting.size > 0) {
      this.#send().then((isDone) => isDone || this.#run(true));
    }
  }

  /** Returns whether the call succeeded. */
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
        this.#isTold = true; // Warns only once, because the failure may last for days.
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
