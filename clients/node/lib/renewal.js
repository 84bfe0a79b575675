"use strict";

const MOST = 1000;

/** Renews the leases of a semaphore: every third of the lease, all in one call. */
class Renewal {
  #refresh;
  #duration;
  #interval;
  #leases = new Map();
  #timer;
  #isStopped = false;

  /** `refresh(args, timeout)` calls the script. */
  constructor(refresh, duration) {
    this.#refresh = refresh;
    this.#duration = duration;
    this.#interval = duration / 3;
  }

  add(lease) {
    this.#leases.set(lease.word, lease);
    this.#timer ??= this.#plan(this.#interval);
  }

  get isEmpty() {
    return this.#leases.size === 0;
  }

  remove(lease) {
    this.#leases.delete(lease.word);
  }

  #plan(pause) {
    return setTimeout(() => this.#renew(), pause).unref();
  }

  async #renew() {
    const started = performance.now();
    const leases = [...this.#leases.values()];
    let isDone = true;
    for (let start = 0; start < leases.length && isDone; start += MOST) {
      isDone = await this.#renewBatch(leases.slice(start, start + MOST));
    }
    const pause = isDone ? started + this.#interval - performance.now() : this.#interval / 10;
    this.#timer = this.#leases.size > 0 && !this.#isStopped ? this.#plan(Math.max(0, pause)) : undefined;
  }

  stop() {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  /** A failure is not a loss: it is tried again, and each lease says its loss at its deadline. */
  async #renewBatch(batch) {
    // One that has ended here was said to be lost, or is now: on the server it must not begin anew.
    const leases = batch.filter((lease) => this.#leases.has(lease.word) && lease.check());
    if (leases.length === 0) return true;
    const args = leases.flatMap(({ word }) => [word, this.#duration]);
    try {
      const { reply, sent } = await this.#refresh(args, this.#interval / 2);
      leases.forEach((lease, index) => {
        if (!this.#leases.has(lease.word)) return; // Given back meanwhile.
        if (reply[2 + index] > 0) lease.renewed(sent);
        else lease.lose("the server does not know it any more");
      });
      return true;
    } catch (error) {
      for (const lease of leases) lease.failure = error;
      return false;
    }
  }
}

module.exports = { Renewal };
