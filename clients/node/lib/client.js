"use strict";

const checks = require("./checks");
const { Semaphore } = require("./semaphore");
const { Server } = require("./server");

/** A client: two connections to Redis, for as many semaphores as you like. */
class SemaphoreClient {
  #server;

  /** Use `SemaphoreClient.connect`. */
  constructor(server) {
    this.#server = server;
  }

  /** `redis` is a URL, or options for node-redis. Times are in ms. */
  static async connect(redis, options = {}) {
    checks.options("options of connect", options, ["prefix", "heartbeatTimeout", "responseTimeout", "outageTolerance"]);
    const { prefix = "sem", heartbeatTimeout = 15_000, responseTimeout = 2_000, outageTolerance = 30_000 } = options;
    const server = new Server(checks.redis(redis), {
      prefix: checks.prefix(prefix),
      heartbeatTimeout: checks.milliseconds("heartbeatTimeout", heartbeatTimeout),
      responseTimeout: checks.milliseconds("responseTimeout", responseTimeout),
      outageTolerance: checks.milliseconds("outageTolerance", outageTolerance),
    });
    await server.start();
    return new SemaphoreClient(server);
  }

  /** The one of that name, while anything of it waits or is held. */
  semaphore(name, options) {
    return this.#server.inUse(new Semaphore(this.#server, name, options));
  }

  /**
   * Ends all waits, and disconnects when all permits are released or lost: those that are held are
   * renewed no more, so that takes a lease at most.
   */
  close() {
    return this.#server.close();
  }
}

// For `await using`. Node.js 18 has no such symbol before 18.18.
if (Symbol.asyncDispose) {
  SemaphoreClient.prototype[Symbol.asyncDispose] = function () {
    return this.close();
  };
}

module.exports = { SemaphoreClient };
