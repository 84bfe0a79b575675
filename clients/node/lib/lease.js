"use strict";

const { PermitLost } = require("./errors");

/**
 * A lease on our own monotonic clock. It counts from before the request was sent, so it ends here
 * before it ends on the server. Once lost, it is lost for good: the holder has been told.
 */
class Lease {
  #semaphore;
  #duration;
  #maxHold;
  /** However often it is renewed, it is not held beyond that. */
  #latest;
  /** When it ends unless it is renewed. */
  end;
  #timer;
  #reason;
  #controller;
  /** Called once, before anybody else hears of it. */
  onLost;
  /** Why the last renewal failed. */
  failure;

  constructor(semaphore, id, since, duration, maxHold = Infinity) {
    this.#semaphore = semaphore;
    this.id = id;
    this.#duration = duration - 1; // the server counts in whole ms
    this.#maxHold = maxHold;
    this.#latest = since + maxHold;
    this.end = since + this.#duration;
  }

  get deadline() {
    return Math.min(this.end, this.#latest);
  }

  /** Whether renewing would make it longer. */
  get canBeLonger() {
    return this.end < this.#latest;
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
    if (this.canBeLonger) this.lose("the lease has ended", this.failure);
    else this.lose(`it was held for ${this.#maxHold} ms, its maxHold`);
    return false;
  }

  renewed(sent) {
    if (!this.check()) return;
    this.failure = undefined;
    this.end = Math.max(this.end, sent + this.#duration);
  }

  lose(why, cause) {
    this.stop();
    if (this.isLost) return;
    this.#reason = new PermitLost(this.#semaphore, this.id, why, cause);
    this.onLost();
    this.#controller?.abort(this.#reason);
  }

  /** Nobody need be told any more. */
  stop() {
    clearTimeout(this.#timer);
  }
}

module.exports = { Lease };
