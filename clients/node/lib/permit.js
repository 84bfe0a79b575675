"use strict";

/** A permit, renewed in the background until it is released or lost. */
class Permit {
  #lease;
  #giveBack;
  #released;

  constructor({ lease, token, weight, giveBack }) {
    this.#lease = lease;
    this.#giveBack = giveBack;
    this.id = lease.word;
    this.fencingToken = token;
    this.weight = weight;
  }

  /** Aborted when the permit is lost, at its deadline at the latest. The reason is a LeaseLost. */
  get lost() {
    return this.#lease.lost;
  }

  /** Exact even where the event loop was too busy to say `lost` in time. */
  get isLost() {
    return this.#lease.isLost || (!this.#released && !this.#lease.isHeld);
  }

  /** Answers false if the permit had been lost before. */
  release() {
    this.#released ??= this.#giveBack();
    return this.#released;
  }
}

// For `await using`. Node.js 18 has no such symbol before 18.18.
if (Symbol.asyncDispose) {
  Permit.prototype[Symbol.asyncDispose] = async function () {
    await this.release();
  };
}

module.exports = { Permit };
