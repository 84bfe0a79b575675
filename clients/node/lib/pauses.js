"use strict";

const { setTimeout: sleep } = require("node:timers/promises");

/** Pauses between attempts: longer each time, and random, so that clients do not retry at the same time. */
class Pauses {
  #last = 0;
  #longest;

  constructor(longest = 250) {
    this.#longest = longest;
  }

  /** When the first attempt in a row failed. */
  since;

  next() {
    this.since ??= performance.now();
    this.#last = Math.min(Math.max(5, 2 * this.#last), this.#longest);
    return sleep(this.#last * (0.5 + Math.random() / 2), undefined, { ref: false });
  }

  reset() {
    this.#last = 0;
    this.since = undefined;
  }
}

module.exports = { Pauses };
