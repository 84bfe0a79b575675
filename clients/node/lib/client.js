"use strict";

const checks = require("./checks");
const { Semaphore } = require("./semaphore");
const { Server } = require("./server");

/** A client: two connections to Redis, for any number of semaphores. */
class SemaphoreClient {
  #server;

  /** Use `SemaphoreClient.connect`. */
  constructor(server) {
    this.#server = server;
  }

  /** Connects. `redis` is a URL, or options of node-redis. Times are in ms. */
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

  /** Returns the semaphore of this name. It is the same object while its requests wait or its permits are held. */
  semaphore(name, options) {
    return this.#server.inUse(new Semaphore(this.#server, name, options));
  }

  /**
   * Ends all waits, and disconnects when all permits are released or lost. Permits are no longer refreshed, so this takes
   * at most one lease, and two response timeouts more if Redis does not reply.
   */
  close() {
    return this.#server.close();
  }
}

// For `await using`. Node.js has this symbol since 18.18.
if (Symbol.asyncDispose) {
  SemaphoreClient.prototype[Symbol.asyncDispose] = function () {
    return this.close();
  };
}

module.exports = { SemaphoreClient };
