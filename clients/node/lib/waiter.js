"use strict";

/** A request from the first acquire on, and the permit that it becomes. */
class Waiter {
  static #count = 0;
  /** Those without a ticket are asked for in the order in which they came. */
  number = Waiter.#count++;
  /** A moment at which it surely was not granted yet: a lease by message counts from here. */
  since = performance.now();
  /** The server's time in the last reply that said "queued". */
  queuedAt = -Infinity;
  ticket;
  position;
  /** Replies that granted it and came too late. */
  lateGrants = 0;
  /** Why the last call failed. */
  failure;
  /** The server may know it. */
  isSent = false;
  isWaiting = true;
  /** Given up, released or lost: from now on whatever the server has for it goes back. */
  isOver = false;

  constructor({ id, weight, mayQueue }) {
    Object.assign(this, { id, weight, mayQueue });
    this.outcome = new Promise((resolve, reject) => Object.assign(this, { resolve, reject }));
  }

  get waitMode() {
    return this.ticket ?? (this.mayQueue ? "wait" : "try");
  }

  queued(ticket, position, sent, serverTime) {
    Object.assign(this, { ticket, position, since: sent, queuedAt: serverTime });
  }

  /**
   * Forgets who waits for it. The lease of a permit refers to its waiter, which by this promise would refer to the
   * permit: that could never be found to be dropped.
   */
  forget() {
    this.outcome = this.resolve = this.reject = undefined;
  }

  /** In the order of their tickets, then of their arrival. */
  static compare(a, b) {
    if (a.ticket !== b.ticket) return (a.ticket ?? Infinity) - (b.ticket ?? Infinity);
    return a.number - b.number;
  }
}

module.exports = { Waiter };
