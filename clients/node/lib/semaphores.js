"use strict";

const checks = require("./checks");
const { Semaphore } = require("./semaphore");
const { Server } = require("./server");

/** A client: two connections to Redis, for as many semaphores as you like. */
class Semaphores {
  #server;

  /** Use `Semaphores.connect`. */
  constructor(server) {
    this.#server = server;
  }

  /** `redis` is a URL, or options for node-redis. Times are in ms. */
  static async connect(
    redis,
    { prefix = "sem", liveness = 15_000, responseTimeout = 2_000, outageTolerance = 30_000 } = {},
  ) {
    const server = new Server(typeof redis === "string" ? { url: redis } : redis, {
      prefix: checks.prefix(prefix),
      liveness: checks.milliseconds("liveness", liveness),
      responseTimeout: checks.milliseconds("responseTimeout", responseTimeout),
      outageTolerance: checks.milliseconds("outageTolerance", outageTolerance),
    });
    await server.start();
    return new Semaphores(server);
  }

  /** The one of that name, while anything of it waits or is held. */
  semaphore(name, options) {
    return this.#server.inUse(new Semaphore(this.#server, name, options));
  }

  /**
   * Ends all waits, returns when what was given up is given back, and disconnects. Release permits
   * before: those that are still held are renewed no more, and are lost when their leases end.
   */
  close() {
    return this.#server.close();
  }
}

// For `await using`. Node.js 18 has no such symbol before 18.18.
if (Symbol.asyncDispose) {
  Semaphores.prototype[Symbol.asyncDispose] = function () {
    return this.close();
  };
}

module.exports = { Semaphores };
