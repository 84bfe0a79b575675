"use strict";

const { createClient, ErrorReply } = require("redis");
const { Closed } = require("./errors");

/**
 * One connection of node-redis, which is never connected anew: whoever uses it must know of a cut.
 * A call that gets no answer in time ends it, since answers after that could not be told apart.
 */
class Link {
  #client;
  #isConnected = false;
  #timeout;
  #tellEnd;
  /** Why it ended. */
  error;
  ended = new Promise((resolve) => (this.#tellEnd = resolve));

  constructor(redis, timeout) {
    this.#timeout = timeout;
    const reconnectStrategy = () => new Error("not connected anew");
    const socket = { ...redis.socket, connectTimeout: timeout, reconnectStrategy };
    this.#client = createClient({ ...redis, RESP: 2, disableClientInfo: true, socket })
      .on("connect", () => (this.#isConnected = true))
      .on("error", (error) => this.end(error));
  }

  static async open(redis, timeout) {
    const link = new Link(redis, timeout);
    await link.#within(timeout, "connecting", () => link.#client.connect());
    return link;
  }

  command(args, timeout = this.#timeout) {
    return this.#within(timeout, args[0], () => this.#client.sendCommand(args));
  }

  subscribe(channel, listener) {
    const asBuffer = true;
    return this.#within(this.#timeout, "SUBSCRIBE", () => this.#client.subscribe(channel, listener, asBuffer));
  }

  async #within(timeout, what, send) {
    if (this.error) throw this.error;
    let isDone = false;
    const end = () => isDone || this.end(new Error(`no answer to ${what} within ${timeout} ms`));
    // After a long pause of this process the answer may be there already: read first, then judge.
    const timer = setTimeout(() => setImmediate(end), timeout);
    try {
      const reply = await send();
      if (this.error) throw this.error;
      return reply;
    } catch (error) {
      // node-redis tells those that waited only that the client was disconnected, not why.
      throw error instanceof ErrorReply ? error : this.error ?? error;
    } finally {
      isDone = true;
      clearTimeout(timer);
    }
  }

  /** Ends it: calls under way fail with this error. */
  end(error) {
    if (this.error) return;
    this.error = error;
    // Before it is connected, its own timeout ends it: node-redis 4.5 can't then.
    if (this.#isConnected && this.#client.isOpen) {
      if (this.#client.destroy) this.#client.destroy();
      else this.#client.disconnect();
    }
    this.#tellEnd(error);
  }
}

/** The connection for commands, opened when it is needed. */
class Connection {
  #open;
  #link;
  #isClosed = false;

  constructor(open) {
    this.#open = open;
  }

  /** The reply, and a moment before the command was sent. */
  async call(args, timeout) {
    const link = await this.#linked();
    const sent = performance.now();
    return { reply: await link.command(args, timeout), sent };
  }

  #linked() {
    if (this.#isClosed) throw new Closed();
    if (!this.#link) {
      const link = this.#open();
      const forget = () => (this.#link = this.#link === link ? undefined : this.#link);
      link.then(({ ended }) => ended.then(forget), forget);
      this.#link = link;
    }
    return this.#link;
  }

  /** The next call connects anew. */
  reset(error) {
    const link = this.#link;
    this.#link = undefined;
    return link?.then((link) => link.end(error), () => {}); // Whoever opened it heard of a failure.
  }

  close() {
    this.#isClosed = true;
    return this.reset(new Closed());
  }
}

module.exports = { Link, Connection };
