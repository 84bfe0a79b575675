"use strict";

const { LeaseLost } = require("./errors");

/**
 * A lease on our own monotonic clock. It counts from before the request was sent, so it ends here
 * before it ends on the server. Once lost, it is lost for good: the holder has been told.
 */
class Lease {
  #semaphore;
  #duration;
  #timer;
  #controller = new AbortController();
  /** Why the last renewal failed. */
  failure;

  constructor(semaphore, id, since, duration) {
    this.#semaphore = semaphore;
    this.id = id;
    this.deadline = since + duration;
    this.#duration = duration;
    this.#watch();
  }

  get lost() {
    return this.#controller.signal;
  }

  get isHeld() {
    return !this.lost.aborted && performance.now() < this.deadline;
  }

  /** A timer is not moved by each renewal: it looks again when it fires. */
  #watch() {
    const left = this.deadline - performance.now();
    if (left <= 0) return this.lose("the lease has ended", this.failure);
    this.#timer = setTimeout(() => this.#watch(), Math.ceil(left)).unref();
  }

  renewed(sent) {
    if (!this.isHeld) return this.lose("the lease has ended", this.failure);
    this.failure = undefined;
    this.deadline = Math.max(this.deadline, sent + this.#duration);
  }

  lose(why, cause) {
    this.stop();
    this.#controller.abort(new LeaseLost(this.#semaphore, this.id, why, cause));
  }

  /** Nobody need be told any more. */
  stop() {
    clearTimeout(this.#timer);
  }
}

module.exports = { Lease };
