"use strict";

const { warn } = require("./errors");

/** A permit, renewed in the background until it is released or lost. */
class Permit {
  #lease;
  #giveBack;
  #release;

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
    return this.#lease.isLost || (!this.#release && !this.#lease.isHeld);
  }

  /** For how many ms it is held, unless it is renewed before. */
  get expiresIn() {
    return this.#lease.isHeld ? this.#lease.deadline - performance.now() : 0;
  }

  /** Answers false if the permit had been lost before. Where it is not confirmed in time, it goes on. */
  async release() {
    this.#release ??= this.#giveBack();
    return this.#release ? this.#release.confirmed() : false;
  }
}

/** At the end of a block, which has not failed where giving back takes longer. */
async function endBlock(permit) {
  try {
    return await permit.release();
  } catch (error) {
    warn(error);
    return true;
  }
}

// For `await using`. Node.js 18 has no such symbol before 18.18.
if (Symbol.asyncDispose) {
  Permit.prototype[Symbol.asyncDispose] = async function () {
    await endBlock(this);
  };
}

module.exports = { Permit, endBlock };
