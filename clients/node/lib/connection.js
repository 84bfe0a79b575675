"use strict";

const { createClient, ErrorReply } = require("redis");
const { version } = require("redis/package.json");
const { Closed } = require("./errors");

/** Version 5 speaks RESP 2 unless told so, and then sends HELLO, which a server may not have. 6 speaks RESP 3. */
const RESP = version.startsWith("5.") ? undefined : 2;

/**
 * One connection of node-redis, which is never connected anew: whoever uses it must know of a cut.
 * A call that gets no answer in time ends it, since answers after that could not be told apart.
 */
class Link {
  #client;
  #isConnected = false;
  #timeout;
  #pings;
  #tellEnd;
  /** The SHA-1 of scripts whose text was sent on this connection, so that the server knows them. */
  #sent = new Set();
  /** Why it ended. */
  error;
  ended = new Promise((resolve) => (this.#tellEnd = resolve));

  constructor(redis, timeout) {
    this.#timeout = timeout;
    const reconnectStrategy = () => new Error("not connected anew");
    const socket = { ...redis.socket, connectTimeout: timeout, reconnectStrategy };
    // Its own timeout for a command would cost an AbortSignal for each, and #within has one already.
    const commandOptions = { timeout: undefined };
    this.#client = createClient({ ...redis, RESP, disableClientInfo: true, commandOptions, socket })
      .on("connect", () => (this.#isConnected = true))
      .on("error", (error) => this.end(error));
    this.#client.unref(); // Whether the process goes on is said in one place: Server.
  }

  /** With `pingInterval` it sends PING so often: node-redis would keep the process alive for that. */
  static async open({ pingInterval, ...redis }, timeout) {
    const link = new Link(redis, timeout);
    await link.#within(timeout, "connecting", () => link.#client.connect());
    if (pingInterval && !link.error) {
      link.#pings = setInterval(() => link.command(["PING"]).catch(() => {}), pingInterval).unref();
    }
    return link;
  }

  command(args, timeout = this.#timeout) {
    return this.#within(timeout, args[0], () => this.#client.sendCommand(args));
  }

  /**
   * Runs a script, with its text the first time. By its SHA-1 alone, a script that the server does not know would
   * be sent a second time, and take effect after calls that were sent after it.
   */
  async run({ sha1, source }, args, timeout) {
    if (this.#sent.has(sha1)) {
      try {
        return await this.command(["EVALSHA", sha1, ...args], timeout);
      } catch (error) {
        if (!(error instanceof ErrorReply && error.message.startsWith("NOSCRIPT"))) throw error;
        this.#sent.clear(); // It has forgotten the others, too.
      }
    }
    this.#sent.add(sha1);
    return this.command(["EVAL", source, ...args], timeout);
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
    const timer = setTimeout(() => setImmediate(end), timeout).unref();
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
    clearInterval(this.#pings);
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

  async command(args, timeout) {
    const link = await this.#linked();
    return link.command(args, timeout);
  }

  /** The reply of a script, and a moment before it was sent. */
  async run(script, args, timeout) {
    const link = await this.#linked();
    const sent = performance.now();
    return { reply: await link.run(script, args, timeout), sent };
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
