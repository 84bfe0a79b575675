"use strict";

const { ErrorReply } = require("redis");

/**
 * The base class of all errors of this client. Its name survives minifiers, and its code identifies errors even if two
 * copies of this package are loaded. An instance of this class itself means that a lease is too short for the round trip.
 */
class SemaphoreError extends Error {}

/** Returns the text in one line. OpenSSL ends its lines, and an error about several addresses has only the others' texts. */
const textOf = ({ message, errors = [] }) => message.trim().replace(/\s*\n\s*/g, "; ") || errors.map(textOf).join("; ");

/** A failed connection. Its text has the address and the step. Other errors contain this text and its cause. */
class Failed extends Error {
  constructor(address, step, cause) {
    const text = textOf(cause);
    const what = isOfReplica(cause) ? `the server is a replica: connect to the primary (${text})` : text;
    super(`${address}, ${step}: ${what}`, { cause });
    this.address = address;
  }
}

/** A shorter password is part of many words, such as the codes of errors. */
const SHORTEST_SECRET = 4;

/** Returns a pattern for a character, also if the text has it as %XX or behind backslashes. */
function escaped(character) {
  const codes = [...Buffer.from(character)].map((byte) => `(?:%|\\\\+x)${byte.toString(16).padStart(2, "0")}`).join("");
  return `(?:\\\\*${character.replace(/[$()*+.?[\\\]^{|}]/g, "\\$&")}|${codes})`;
}

/**
 * Returns a server's text without the arguments of a command, because those of AUTH and HELLO contain the password, and
 * without the password in another form. It has at most 500 characters.
 */
function shown(text, password = "") {
  let found = text.split(/,? with args beginning with/i, 1)[0];
  if (password.length >= SHORTEST_SECRET) {
    found = found.replace(new RegExp([...password].map(escaped).join(""), "gi"), "***");
  }
  if (/^NOAUTH|unauthenticated (multi)?bulk/.test(found)) {
    found += ": the server requires a password, in the URL (redis://:PASSWORD@HOST) or in the option password";
  }
  return found.length <= 500 ? found : `${found.slice(0, 500)}...`;
}

/** Returns an error of the server with the text of `shown`. The original error would still have all in its stack. */
function discreet(error, password) {
  const text = error instanceof ErrorReply ? shown(error.message, password) : error.message;
  return text === error.message ? error : new ErrorReply(text);
}

const notOfRedis = (what) => `the reply is not of a Redis server: ${what}. Check the host and the port`;

/** Returns the error for a reply that no Redis server sends. */
const notRedis = (what) => new ErrorReply(notOfRedis(what));

/** Returns the error for a reply that node-redis cannot read, or for which it has sent no command. */
const unreadable = (cause) => new Error(notOfRedis("node-redis cannot read it"), { cause });

const isAboutArgument = (error) => error instanceof TypeError || error instanceof RangeError;

/** Returns the error of an established connection. Its cause may be a reply, or a credentials provider, but no argument. */
function established(error, provider) {
  if (!isAboutArgument(error) && !error.message.startsWith("Unknown RESP type")) return error;
  if (!provider) return unreadable(error);
  const what = `redis.credentialsProvider has failed, or the server is not a Redis server: ${error.message}`;
  return new Error(what, { cause: error });
}

/** Adds the address and the step to an error that has none. An error about an argument needs none. */
function named(error, address, step) {
  if (error instanceof Failed || error instanceof SemaphoreError || isAboutArgument(error)) return error;
  return new Failed(address, step, error);
}

const origin = (error) => (error instanceof Failed ? error.cause : error);

/** Returns whether the server rejected the call. */
const isRejection = (error) => origin(error) instanceof ErrorReply;

/**
 * Returns whether the server rejected the call before its script changed anything. The text of an error within a script
 * names the script.
 */
function changedNothing(error) {
  const { message } = origin(error);
  return isRejection(error) && (message.startsWith("SEM_") || !/script|not of a Redis server/.test(message));
}

const because = (error) => error && { cause: origin(error) };

/** The request exceeds the limit, so it can never be granted. */
class TooHeavy extends SemaphoreError {
  constructor(semaphore, weight, limit) {
    super(`semaphore ${semaphore}: a weight of ${weight} can never fit the limit of ${limit}`);
    Object.assign(this, { semaphore, weight, limit });
  }
}

/**
 * The wait took longer than the timeout of the acquire. The request leaves the queue. If the last call failed, its error is
 * the `cause`.
 */
class AcquireTimeout extends SemaphoreError {
  constructor(semaphore, timeout, position, cause) {
    const reached = position ? `last queue position: ${position}` : "no queue position is known";
    const why = cause ? `, and the last call failed: ${cause.message}` : "";
    super(`semaphore ${semaphore}: no permit within ${timeout} ms (${reached})${why}`, because(cause));
    Object.assign(this, { semaphore, timeout, position });
  }
}

/** The permit is lost, so another client may hold it now. */
class PermitLost extends SemaphoreError {
  constructor(semaphore, id, why, cause) {
    super(`semaphore ${semaphore}: the permit ${id} is lost: ${why}`, because(cause));
    Object.assign(this, { semaphore, id });
  }
}

/** The program's call. `connect` has no semaphore. */
const callOf = (semaphore, operation) => (semaphore === undefined ? operation : `semaphore ${semaphore}: ${operation}`);

/**
 * A wait has failed for the outage tolerance, another call has failed for two response timeouts, or `connect` has
 * failed.
 */
class Unavailable extends SemaphoreError {
  constructor(semaphore, operation, cause) {
    const tooLong = semaphore === undefined ? "" : " for too long";
    super(`${callOf(semaphore, operation)} has failed${tooLong}: ${cause.message}`, because(cause));
    Object.assign(this, { semaphore, operation });
  }
}

/** Redis returned a permanent error, which is the `cause`. */
class Rejected extends SemaphoreError {
  constructor(semaphore, operation, cause) {
    super(`${callOf(semaphore, operation)} was rejected: ${cause.message}`, because(cause));
    Object.assign(this, { semaphore, operation });
  }
}

/** The server is a cluster or a sentinel, or `connect` has found that the server is too old or the user lacks a right. */
class Unsupported extends SemaphoreError {}

/** The client was closed. */
class Closed extends SemaphoreError {
  constructor() {
    super("the client was closed");
  }
}

/** Literals, because minifiers rename classes. */
const NAMES = [
  [SemaphoreError, "SemaphoreError", "SEM_LEASE_TOO_SHORT"],
  [TooHeavy, "TooHeavy", "SEM_TOO_HEAVY"],
  [AcquireTimeout, "AcquireTimeout", "SEM_TIMEOUT"],
  [PermitLost, "PermitLost", "SEM_LOST"],
  [Unavailable, "Unavailable", "SEM_UNAVAILABLE"],
  [Rejected, "Rejected", "SEM_REJECTED"],
  [Unsupported, "Unsupported", "SEM_UNSUPPORTED"],
  [Closed, "Closed", "SEM_CLOSED"],
];
for (const [{ prototype }, name, code] of NAMES) {
  for (const [key, value] of Object.entries({ name, code })) {
    Object.defineProperty(prototype, key, { value, configurable: true, writable: true });
  }
}

const PASSING = "LOADING|BUSY|MASTERDOWN|NOREPLICAS|READONLY|ERR max number of clients";

/** Returns whether an error has one of these codes. Redis 6.2 adds prefixes to the errors of commands in scripts. */
function says(error, codes) {
  const reply = origin(error);
  return reply instanceof ErrorReply && new RegExp(`^(?:(?:ERR|@user_script:) .*-)?(?:${codes}) `).test(reply.message);
}

/** Returns whether a replica returned this error. Its address may lead to another server now. */
const isOfReplica = (error) => says(error, "READONLY|MASTERDOWN");

/** Returns whether the server has no memory or no disk space for new requests. */
const isFull = (error) => says(error, "OOM|MISCONF");

/** Returns whether the user may not call a command or use a key or a channel, or the server does not know a command. */
function lacks(error) {
  const reply = origin(error);
  const text = /NOPERM|no permissions|the user executing the script can't|unknown.* command/i;
  return reply instanceof ErrorReply && text.test(reply.message);
}

/** Returns whether to retry a call after this error: a failed connection, or a temporary state of the server. */
function isPassing(error) {
  if (isRejection(error)) return says(error, PASSING);
  return !(error instanceof SemaphoreError || isAboutArgument(error));
}

const cluster = (server = "this server", cause) =>
  new Unsupported(
    `${server} is a node of a Redis Cluster, which this client does not support. ` +
      "Connect to a server that is not in cluster mode, or use the Rust crate",
    because(cause),
  );

/** Returns whether only a node of a cluster returns this error. */
const isOfCluster = (error) => says(error, "MOVED|ASK|CROSSSLOT|TRYAGAIN|CLUSTERDOWN");

/** Returns the error for the caller after a call has failed for too long, or permanently. */
function failure(semaphore, operation, error = new Error("no reply yet")) {
  if (error instanceof SemaphoreError) return error;
  if (isOfCluster(error)) return cluster(error.address, error);
  return new (isPassing(error) ? Unavailable : Rejected)(semaphore, operation, error);
}

/** Returns the error for the caller of `connect`. */
function failureOfConnect(error) {
  if (isAboutArgument(error)) return error;
  if (!lacks(error)) return failure(undefined, "connect", error);
  const what = "connect failed: the user lacks a right, or the server does not know a command";
  return new Unsupported(`${what}: ${error.message}`, because(error));
}

/** Emits a warning about a failure that the program cannot catch. A closed client is no failure. */
const warn = (error) => error instanceof Closed || process.emitWarning(error);

module.exports = {
  SemaphoreError, TooHeavy, AcquireTimeout, PermitLost, Unavailable, Rejected, Unsupported, Closed, named, shown, discreet,
  notRedis, unreadable, established, isOfReplica, isFull, isPassing, isRejection, changedNothing, cluster, failure,
  failureOfConnect, warn,
};
