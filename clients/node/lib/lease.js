"use strict";

const { PermitLost } = require("./errors");

/**
 * A lease on the monotonic clock of this process. It counts from a time before the request was sent, so it expires
 * here before it expires on the server. A lost lease stays lost, because the holder was notified.
 */
class Lease {
  #semaphore;
  #duration;
  #maxHold;
  /** The latest end of the permit, however often the permit is refreshed. */
  #latest;
  /** When it expires unless it is refreshed. */
  end;
  #timer;
  #reason;
  #controller;
  /** Called once, before the signal `lost`. */
  onLost;
  /** Why the last refresh failed. */
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

  /** Whether a refresh would extend it. */
  get canBeLonger() {
    return this.end < this.#latest;
  }

  /** Created at the first use, because a signal costs more than all other parts of this object. */
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

  /** Aborts `lost` at the deadline. A refresh does not move the timer, which checks again when it fires. */
  watch() {
    if (!this.check()) return;
    const left = this.deadline - performance.now();
    this.#timer = setTimeout(() => this.watch(), Math.ceil(left)).unref();
  }

  /** Returns whether it is held. If it has expired unnoticed, this aborts `lost`. */
  check() {
    if (this.isHeld) return true;
    if (this.canBeLonger) this.lose("the lease expired", this.failure);
    else this.lose(`it was held for ${this.#maxHold} ms, its maxHold`);
    return false;
  }

  refreshed(sent) {
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

  /** Stops the timer. */
  stop() {
    clearTimeout(this.#timer);
  }
}

module.exports = { Lease };
