"use strict";

const MOST = 1000;

/** Refreshes the leases of a semaphore after each third of the lease, all in one call. */
class AutoRefresh {
  #refresh;
  #duration;
  #interval;
  #leases = new Map();
  #timer;
  /** When the timer fires. */
  #next = Infinity;
  #isRefreshing = false;
  #isStopped = false;

  /** `refresh(args, timeout)` calls the script. */
  constructor(refresh, duration) {
    this.#refresh = refresh;
    this.#duration = duration;
    this.#interval = duration / 3;
  }

  add(lease) {
    this.#leases.set(lease.id, lease);
    if (!this.#isRefreshing) this.#plan(this.#due(lease));
  }

  get isEmpty() {
    return this.#leases.size === 0;
  }

  remove(lease) {
    this.#leases.delete(lease.id);
  }

  /** Returns when to refresh: a third of the lease after its start. The grant may have arrived long after the start. */
  #due(lease) {
    return lease.canBeLonger ? lease.end - 2 * this.#interval : Infinity;
  }

  #plan(time) {
    if (this.#isStopped || time >= this.#next) return;
    clearTimeout(this.#timer);
    this.#next = time;
    this.#timer = setTimeout(() => this.#refreshAll(), Math.max(0, time - performance.now())).unref();
  }

  async #refreshAll() {
    this.#next = Infinity;
    this.#isRefreshing = true;
    const leases = [...this.#leases.values()];
    let isDone = true;
    for (let start = 0; start < leases.length && isDone; start += MOST) {
      isDone = await this.#refreshBatch(leases.slice(start, start + MOST));
    }
    this.#isRefreshing = false;
    if (isDone) for (const lease of this.#leases.values()) this.#plan(this.#due(lease));
    else if (!this.isEmpty) this.#plan(performance.now() + this.#interval / 10);
  }

  stop() {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  /** Refreshes some leases. Returns false after a failure. Then the refresh is retried until the leases' deadlines. */
  async #refreshBatch(batch) {
    // A lease that has expired here counts as lost, so it must not be extended on the server.
    const leases = batch.filter((lease) => this.#leases.has(lease.id) && lease.check() && lease.canBeLonger);
    if (leases.length === 0) return true;
    const args = leases.flatMap(({ id }) => [id, this.#duration]);
    try {
      const { reply, sent } = await this.#refresh(args, this.#interval / 2);
      leases.forEach((lease, index) => {
        if (!this.#leases.has(lease.id)) return; // The permit was released in the meantime.
        if (reply[2 + index] > 0) lease.refreshed(sent);
        else lease.lose("the server does not know the permit: it was revoked, or lost by the server");
      });
      return true;
    } catch (error) {
      for (const lease of leases) lease.failure = error;
      return false;
    }
  }
}

module.exports = { AutoRefresh };
