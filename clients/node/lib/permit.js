"use strict";

const { warn } = require("./errors");

/** The state of a permit. It remains after the program has dropped the permit, so it must not refer to the permit. */
class Holding {
  release;

  constructor({ lease, giveBack }) {
    this.lease = lease;
    this.giveBack = giveBack;
  }

  /** Releases a dropped permit, which would otherwise be refreshed forever. */
  dropped() {
    if (this.release || !this.lease.check()) return;
    this.lease.lose("the program dropped it without release(), and it was garbage-collected");
    warn(this.lease.lost.reason);
  }
}

const dropped = new FinalizationRegistry((holding) => holding.dropped());

/** A permit, refreshed in the background until it is released, lost or dropped. */
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

  /** Whether the permit is lost now, even if the event loop was too busy to abort `lost` in time. */
  get isLost() {
    return this.#lease.isLost || (!this.#holding.release && !this.#lease.isHeld);
  }

  /** For how many ms the permit is held unless it is refreshed. 0 if it was released or lost. */
  get expiresIn() {
    return !this.#holding.release && this.#lease.isHeld ? this.#lease.deadline - performance.now() : 0;
  }

  /** Resolves to false if the permit was already lost. If Redis does not confirm in time, this rejects, and retries continue. */
  async release() {
    const holding = this.#holding;
    holding.release ??= holding.giveBack();
    return holding.release ? holding.release.confirmed() : false;
  }
}

/** Releases the permit at the end of a block. The block does not fail if the release takes longer. */
async function endBlock(permit) {
  try {
    return await permit.release();
  } catch (error) {
    warn(error);
    return true;
  }
}

// For `await using`. Node.js has this symbol since 18.18.
if (Symbol.asyncDispose) {
  Permit.prototype[Symbol.asyncDispose] = async function () {
    await endBlock(this);
  };
}

module.exports = { Permit, endBlock };
