"use strict";

const { Closed } = require("./errors");
const { Pauses } = require("./pauses");

const LONGEST_MESSAGE = 1 << 20;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The connection for grant messages. It subscribes again after each failure. */
class Listener {
  #open;
  #link;
  #error;
  #isClosed = false;
  #heard = 0;
  #pauses = new Pauses(1000);
  #onMessage;
  #onSubscribed;

  constructor(channel, { open, onMessage, onSubscribed }) {
    this.channel = channel;
    this.#open = open;
    this.#onMessage = onMessage;
    this.#onSubscribed = onSubscribed;
  }

  async start() {
    const link = await this.#open();
    try {
      await link.subscribe(this.channel, (message) => this.#receive(message));
    } catch (error) {
      link.end(error, "SUBSCRIBE");
      throw link.error;
    }
    if (this.#isClosed) return link.end(new Closed());
    this.#link = link;
    link.ended.then(() => this.#restart());
  }

  async #restart() {
    this.#error = this.#link.error;
    this.#link = undefined;
    for (;;) {
      await this.#pauses.next();
      if (this.#isClosed) return;
      try {
        await this.start();
        return this.#onSubscribed();
      } catch (error) {
        this.#error = error; // Waiting requests get this error, and fail if it lasts.
      }
    }
  }

  /** Throws unless this client is subscribed. Otherwise, the server would treat its requests as dead. */
  mustListen() {
    if (this.#isClosed) throw new Closed();
    const cause = this.#error;
    if (!this.#link) throw new Error(`the subscription has failed: ${cause.message}`, { cause });
  }

  /**
   * Checks whether the connection is alive, because a dead connection looks like a quiet connection. node-redis 4.5
   * cannot send PING on a subscribed connection, so the client publishes an empty message to its own channel.
   */
  async check(publish, patience) {
    const link = this.#link;
    const before = this.#heard;
    if (!link) return;
    const listeners = await publish(this.channel, "");
    // After a failover, calls may use the new primary, and this connection may use the old primary.
    if (listeners === 0) return link.end(new Error("the server of the calls has no subscription of this client"));
    const judge = () => {
      if (this.#heard === before) link.end(new Error("the subscription does not receive messages"));
    };
    setTimeout(() => setImmediate(judge), patience).unref();
  }

  #receive(message) {
    this.#heard += 1;
    this.#pauses.reset(); // A subscription alone resets nothing, because each new connection may soon fail.
    const handOffs = read(message);
    if (handOffs) this.#onMessage(handOffs);
  }

  /** Called after an error of a replica, because another server may be the primary now. */
  reset(error) {
    this.#link?.end(error);
  }

  close() {
    this.#isClosed = true;
    this.#link?.end(new Closed());
  }
}

/** Parses a message. Returns undefined if no script can have sent it, because other clients may publish, too. */
function read(message) {
  if (message.length > LONGEST_MESSAGE) return undefined;
  let text;
  try {
    text = utf8.decode(message);
  } catch {
    return undefined; // Not UTF-8.
  }
  const [name, ...lines] = text.split("\n");
  const grants = lines.map((line) => /^(\S+) (\d{1,16}) (\d{1,16})$/.exec(line));
  const isSound = (grant) => grant && grant.slice(2).every((number) => Number.isSafeInteger(Number(number)));
  if (!grants.every(isSound)) return undefined;
  return { name, grants: grants.map(([, id, token, end]) => ({ id, token: Number(token), end: Number(end) })) };
}

module.exports = { Listener };
