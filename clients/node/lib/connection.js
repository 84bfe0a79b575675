"use strict";

const { createClient, ErrorReply } = require("redis");
const { version } = require("redis/package.json");
const { addressOf } = require("./address");
const { Closed, discreet, established, named, unreadable } = require("./errors");

/**
 * Version 5 uses RESP 2 by default. With the option, version 5 sends HELLO, which a server may not know. Version 6 uses
 * RESP 3 by default.
 */
const RESP = version.startsWith("5.") ? undefined : 2;

/**
 * Returns a socket option that passes errors of the data handler of node-redis 4 to `fail`. node-redis 4 does not catch
 * them, so a peer that is no Redis server would end the process. Node.js calls `callback` as a method of the socket.
 */
const guarded = (fail) => ({
  buffer: Buffer.allocUnsafeSlow(1 << 16),
  callback(length, buffer) {
    try {
      this.emit("data", Buffer.from(buffer.subarray(0, length)));
    } catch (error) {
      fail(unreadable(error));
    }
  },
});

const isNoScript = (error) => error instanceof ErrorReply && error.message.startsWith("NOSCRIPT");

/**
 * One connection of node-redis. It never reconnects, because its user must find out about a failure. A call without a
 * reply in time ends the connection, because later replies could not be matched to calls.
 */
class Link {
  #client;
  #address;
  #password;
  #step = "connecting";
  #isConnected = false;
  #timeout;
  #pings;
  #tellEnd;
  /** The SHA-1 of the scripts whose source was sent on this connection, so that the server knows them. */
  #sent = new Set();
  /** Why it ended. */
  error;
  ended = new Promise((resolve) => (this.#tellEnd = resolve));

  constructor(redis, timeout) {
    this.#address = addressOf(redis.socket);
    // A user without a password may be a password without its colon.
    this.#password = redis.password || redis.username;
    this.#timeout = timeout;
    const reconnectStrategy = () => new Error("this connection does not reconnect");
    const socket = { ...redis.socket, connectTimeout: timeout, reconnectStrategy };
    if (version.startsWith("4.")) socket.onread = guarded((error) => this.end(error));
    // node-redis would create an AbortSignal per command for its timeout. #within has its own timeout.
    const commandOptions = { timeout: undefined };
    this.#client = createClient({ ...redis, RESP, disableClientInfo: true, commandOptions, socket })
      .on("connect", () => (this.#isConnected = true))
      .on("error", (error) => {
        const provider = this.#step === "connecting" && redis.credentialsProvider;
        this.end(discreet(this.#isConnected ? established(error, provider) : error, this.#password));
      });
    this.#client.unref(); // Only the class Server keeps the process alive.
  }

  /** Connects. Sends PING in each `pingInterval`, because the pings of node-redis would keep the process alive. */
  static async open({ pingInterval, ...redis }, timeout) {
    const link = new Link(redis, timeout);
    await link.#within(timeout, "connecting", () => link.#client.connect());
    link.#step = "reading";
    if (pingInterval && !link.error) {
      link.#pings = setInterval(() => link.command(["PING"]).catch(() => {}), pingInterval).unref();
    }
    return link;
  }

  command(args, timeout = this.#timeout) {
    return this.#within(timeout, args[0], () => this.#client.sendCommand(args));
  }

  /**
   * Runs a script, with its source the first time. With the SHA-1 alone, the server might not know the script, and the
   * call would be repeated. After such an error, the next run sends the source again.
   */
  async run({ sha1, source }, args, timeout) {
    const isKnown = this.#sent.has(sha1);
    this.#sent.add(sha1);
    try {
      return await this.command(isKnown ? ["EVALSHA", sha1, ...args] : ["EVAL", source, ...args], timeout);
    } catch (error) {
      if (isNoScript(error)) this.#sent.clear(); // The server has lost the other scripts, too.
      throw error;
    }
  }

  subscribe(channel, listener) {
    const asBuffer = true;
    return this.#within(this.#timeout, "SUBSCRIBE", () => this.#client.subscribe(channel, listener, asBuffer));
  }

  async #within(timeout, what, send) {
    if (this.error) throw this.error;
    let isDone = false;
    const end = () => isDone || this.end(new Error(`no reply within ${timeout} ms`), what);
    // After a long pause of this process, the reply may have arrived. So this reads before it decides.
    const timer = setTimeout(() => setImmediate(end), timeout).unref();
    try {
      const reply = await send();
      if (this.error) throw this.error;
      return reply;
    } catch (error) {
      // The errors of node-redis do not contain the reason of a disconnection.
      throw error instanceof ErrorReply ? discreet(error, this.#password) : this.error ?? error;
    } finally {
      isDone = true;
      clearTimeout(timer);
    }
  }

  /** Ends the connection. Current calls fail with this error, which names the server. */
  end(error, step = this.#step) {
    if (this.error) return;
    this.error = named(error, this.#address, step);
    clearInterval(this.#pings);
    // While node-redis connects, its own timeout ends the attempt, because node-redis 4.5 cannot disconnect then.
    if (this.#isConnected && this.#client.isOpen) {
      if (this.#client.destroy) this.#client.destroy();
      else this.#client.disconnect();
    }
    this.#tellEnd();
  }
}

/** The connection for commands, which opens when it is needed. */
class Connection {
  #connect;
  #link;
  #isClosed = false;

  constructor(connect) {
    this.#connect = connect;
  }

  async command(args, timeout) {
    const link = await this.open();
    return link.command(args, timeout);
  }

  /** Runs a script. Returns its reply, and a time before the call was sent. */
  async run(script, args, timeout) {
    const link = await this.open();
    const sent = performance.now();
    return { reply: await link.run(script, args, timeout), sent };
  }

  open() {
    if (this.#isClosed) throw new Closed();
    if (!this.#link) {
      const link = this.#connect();
      const forget = () => (this.#link = this.#link === link ? undefined : this.#link);
      link.then(({ ended }) => ended.then(forget), forget);
      this.#link = link;
    }
    return this.#link;
  }

  /** Disconnects. The next call connects again. */
  reset(error) {
    const link = this.#link;
    this.#link = undefined;
    return link?.then((link) => link.end(error), () => {}); // The call that opened the connection got the failure.
  }

  close() {
    this.#isClosed = true;
    this.reset(new Closed()); // Not awaited, because `reset` waits for a connection that is being opened.
  }
}

module.exports = { Link, Connection, isNoScript };
