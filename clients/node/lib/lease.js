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
  #reason;
  #controller;
  /** Called once, before anybody else hears of it. */
  onLost;
  /** Why the last renewal failed. */
  failure;

  constructor(semaphore, word, since, duration) {
    this.#semaphore = semaphore;
    this.word = word;
    this.#duration = duration - 1; // the server counts in whole ms
    this.deadline = since + this.#duration;
  }

  /** Made when it is asked for, as it costs more than the rest of a lease. */
  get lost() {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#reason) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  get isLost() {
    return this.#reason !== undefined;
  }

  get isHeld() {
    return !this.isLost && performance.now() < this.deadline;
  }

  /** Says `lost` at the deadline. The timer is not moved by each renewal: it looks again when it fires. */
  watch() {
    if (!this.check()) return;
    const left = this.deadline - performance.now();
    this.#timer = setTimeout(() => this.watch(), Math.ceil(left)).unref();
  }

  /** Whether it is held. Where its end was not noticed yet, it says `lost` now. */
  check() {
    if (this.isHeld) return true;
    this.lose("the lease has ended", this.failure);
    return false;
  }

  renewed(sent) {
    if (!this.check()) return;
    this.failure = undefined;
    this.deadline = Math.max(this.deadline, sent + this.#duration);
  }

  lose(why, cause) {
    this.stop();
    if (this.isLost) return;
    this.#reason = new LeaseLost(this.#semaphore, this.word, why, cause);
    this.onLost();
    this.#controller?.abort(this.#reason);
  }

  /** Nobody need be told any more. */
  stop() {
    clearTimeout(this.#timer);
  }
}

module.exports = { Lease };
