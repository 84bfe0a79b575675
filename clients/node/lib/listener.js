"use strict";

const { Closed } = require("./errors");
const { Pauses } = require("./pauses");

const LONGEST_MESSAGE = 1 << 20;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The connection on which wake-ups come. It subscribes again after each cut. */
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
      link.end(error);
      throw error;
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
        this.#error = error; // Whoever waits meets it, and fails in the end if that lasts.
      }
    }
  }

  /** A request that is queued while nobody listens would be taken for one of a dead client. */
  mustListen() {
    if (this.#isClosed) throw new Closed();
    const cause = this.#error;
    if (!this.#link) throw new Error(`the connection for wake-ups is cut: ${cause.message}`, { cause });
  }

  /**
   * Is the connection alive? A silent one looks like a quiet one. node-redis 4.5 cannot send PING
   * on it, so an empty message, which says nothing, goes through the server to ourselves.
   */
  async check(publish, patience) {
    const link = this.#link;
    const before = this.#heard;
    if (!link) return;
    const listeners = await publish(this.channel, "");
    // After a failover calls may go to the new primary, and this connection still to the old one.
    if (listeners === 0) return link.end(new Error("nobody listens for wake-ups where calls go"));
    const judge = () => {
      if (this.#heard === before) link.end(new Error("the connection for wake-ups is silent"));
    };
    setTimeout(() => setImmediate(judge), patience).unref();
  }

  #receive(message) {
    this.#heard += 1;
    this.#pauses.reset(); // Not by the subscription alone: that may be cut each time.
    const handOffs = read(message);
    if (handOffs) this.#onMessage(handOffs);
  }

  /** On `READONLY`: the primary is elsewhere by now. */
  reset(error) {
    this.#link?.end(error);
  }

  close() {
    this.#isClosed = true;
    this.#link?.end(new Closed());
  }
}

/** What a message says; nothing if no script can have sent it, as anybody may publish anything. */
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
