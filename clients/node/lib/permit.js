"use strict";

const { warn } = require("./errors");

/** What a permit knows, and what is left of it when the program has dropped it: nothing here refers to the permit. */
class Holding {
  release;

  constructor({ lease, giveBack }) {
    this.lease = lease;
    this.giveBack = giveBack;
  }

  /** Nobody can release it any more. Otherwise it would be renewed for ever. */
  dropped() {
    if (this.release || !this.lease.check()) return;
    this.lease.lose("the program dropped it without release(), and it was garbage-collected");
    warn(this.lease.lost.reason);
  }
}

const dropped = new FinalizationRegistry((holding) => holding.dropped());

/** A permit, renewed in the background until it is released, lost or dropped. */
class Permit {
  #lease;
  #holding;

  constructor({ lease, token, weight, giveBack }) {
    this.#lease = lease;
    this.#holding = new Holding({ lease, giveBack });
    this.id = lease.id;
    this.fencingToken = token;
    this.weight = weight;
    dropped.register(this, this.#holding);
  }

  /** Aborted when the permit is lost, at its deadline at the latest. The reason is a PermitLost. */
  get lost() {
    return this.#lease.lost;
  }

  /** Exact even where the event loop was too busy to say `lost` in time. */
  get isLost() {
    return this.#lease.isLost || (!this.#holding.release && !this.#lease.isHeld);
  }

  /** For how many ms it is held, unless it is renewed before. */
  get expiresIn() {
    return this.#lease.isHeld ? this.#lease.deadline - performance.now() : 0;
  }

  /** Answers false if the permit had been lost before. Where it is not confirmed in time, it goes on. */
  async release() {
    const holding = this.#holding;
    holding.release ??= holding.giveBack();
    return holding.release ? holding.release.confirmed() : false;
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
