"use strict";

const { isPassing, Refused, Closed } = require("./errors");
const { Pauses } = require("./pauses");

const MOST = 1000;
const UNKNOWN = 0;

/** Gives words back until that is confirmed, or until they are gone by themselves. */
class Releases {
  #release;
  #semaphore;
  #waiting = new Map();
  #isRunning = false;

  /** `release(args)` calls the script. */
  constructor(semaphore, release) {
    this.#semaphore = semaphore;
    this.#release = release;
  }

  /** Answers false if the server surely knew the word no more. At `until` nothing of it is left. */
  add(word, until) {
    return new Promise((resolve, reject) => {
      this.#enqueue({ word, until, isRepeated: false, callers: [{ resolve, reject }] });
      if (!this.#isRunning) this.#run();
    });
  }

  /** A word is in a call once: one that is given back twice has two callers. */
  #enqueue(entry) {
    const other = this.#waiting.get(entry.word);
    if (other) {
      entry.callers.push(...other.callers);
      entry.isRepeated ||= other.isRepeated;
      entry.until = Math.max(entry.until, other.until);
    }
    this.#waiting.set(entry.word, entry);
  }

  async #run() {
    this.#isRunning = true;
    const pauses = new Pauses();
    await undefined; // What is given back in one go is one call.
    while (this.#waiting.size > 0) {
      const batch = [...this.#waiting.values()].slice(0, MOST);
      for (const { word } of batch) this.#waiting.delete(word);
      try {
        const { reply } = await this.#release(["return", ...batch.map(({ word }) => word)]);
        batch.forEach((entry, index) => settle(entry, reply[2] === 3 ? 3 : reply[2 + index]));
        pauses.reset();
      } catch (error) {
        this.#failed(batch, error);
        await pauses.next();
      }
    }
    this.#isRunning = false;
  }

  #failed(batch, error) {
    for (const entry of batch) {
      if (!isPassing(error)) {
        const refused = error instanceof Closed ? error : new Refused(this.#semaphore, "release", error);
        for (const { reject } of entry.callers) reject(refused);
      } else if (performance.now() >= entry.until) {
        for (const { resolve } of entry.callers) resolve(true);
      } else {
        this.#enqueue({ ...entry, isRepeated: true });
      }
    }
  }
}

/** After a lost reply "unknown" may come from the call before, so it does not say "lost". */
function settle({ callers, isRepeated }, answer) {
  for (const { resolve } of callers) resolve(answer !== UNKNOWN || isRepeated);
}

module.exports = { Releases };
