"use strict";

/** A request from its first call on, and then its permit. */
class Waiter {
  static #count = 0;
  /** Requests without a ticket are sent in this order. */
  number = Waiter.#count++;
  /** A time before the grant. The lease of a grant message counts from here. */
  since = performance.now();
  /** The server's time in the last reply "queued". */
  queuedAt = -Infinity;
  ticket;
  position;
  /** The number of late replies with a grant. */
  lateGrants = 0;
  /** Why the last call failed. */
  failure;
  /** Whether the request was sent. False again if the server certainly does not know it. */
  isSent = false;
  /** Whether the server may know the request although its last call failed. */
  mayBeKnown = false;
  isWaiting = true;
  /** Given up, released or lost: a permit that the server still grants is released. */
  isOver = false;

  constructor({ id, weight, mayQueue }) {
    Object.assign(this, { id, weight, mayQueue });
    this.outcome = new Promise((resolve, reject) => Object.assign(this, { resolve, reject }));
  }

  get waitMode() {
    return this.ticket ?? (this.mayQueue ? "wait" : "try");
  }

  queued(ticket, position, sent, serverTime) {
    Object.assign(this, { ticket, position, since: sent, queuedAt: serverTime, failure: undefined });
  }

  /**
   * Removes the promise. Otherwise, a dropped permit could never be collected, because its lease refers to the waiter,
   * and the promise refers to the permit.
   */
  forget() {
    this.outcome = this.resolve = this.reject = undefined;
  }

  /** Compares by ticket, and then by arrival. */
  static compare(a, b) {
    if (a.ticket !== b.ticket) return (a.ticket ?? Infinity) - (b.ticket ?? Infinity);
    return a.number - b.number;
  }
}

module.exports = { Waiter };
