"use strict";

const { ErrorReply } = require("redis");

/**
 * The base class of all errors of this client. Its name survives minifiers, and its code identifies errors even if two
 * copies of this package are loaded. An instance of this class itself means that a lease is too short for the round trip.
 */
class SemaphoreError extends Error {}

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
    super(`semaphore ${semaphore}: no permit within ${timeout} ms (${reached})${why}`, cause && { cause });
    Object.assign(this, { semaphore, timeout, position });
  }
}

/** The permit is lost, so another client may hold it now. */
class PermitLost extends SemaphoreError {
  constructor(semaphore, id, why, cause) {
    super(`semaphore ${semaphore}: the permit ${id} is lost: ${why}`, cause && { cause });
    Object.assign(this, { semaphore, id });
  }
}

/** A wait has failed for the outage tolerance, or another call has failed for two response timeouts. */
class Unavailable extends SemaphoreError {
  constructor(semaphore, operation, cause) {
    super(`semaphore ${semaphore}: ${operation} has failed for too long: ${cause.message}`, { cause });
    Object.assign(this, { semaphore, operation });
  }
}

/** Redis returned a permanent error, which is the `cause`. */
class Rejected extends SemaphoreError {
  constructor(semaphore, operation, cause) {
    super(`semaphore ${semaphore}: ${operation} was rejected: ${cause.message}`, { cause });
    Object.assign(this, { semaphore, operation });
  }
}

/** The server is a replica, a cluster or too old, or the user lacks a right. */
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

/** Returns whether an error has one of these codes. Redis 6.2 adds a prefix to the errors of commands in scripts. */
const says = (error, codes) =>
  error instanceof ErrorReply && new RegExp(`^(?:ERR .*-)?(?:${codes}) `).test(error.message);

/** Returns whether to retry a call after this error: a failed connection, or a temporary state of the server. */
const isPassing = (error) =>
  error instanceof ErrorReply ? says(error, PASSING) : !(error instanceof SemaphoreError || error instanceof TypeError);

const cluster = (cause) =>
  new Unsupported(
    "this server is a node of a Redis Cluster, which this client does not support. " +
      "Connect to a server that is not in cluster mode, or use the Rust crate",
    cause && { cause },
  );

/** Returns whether only a node of a cluster returns this error. */
const isOfCluster = (error) => says(error, "MOVED|ASK|CROSSSLOT|TRYAGAIN|CLUSTERDOWN");

/** Returns the error for the caller after a call has failed for too long, or permanently. */
function failure(semaphore, operation, error = new Error("no reply yet")) {
  if (error instanceof Closed) return error;
  if (isOfCluster(error)) return cluster(error);
  return new (isPassing(error) ? Unavailable : Rejected)(semaphore, operation, error);
}

/** Reports a failure in the background. A closed client is no failure. */
const warn = (error) => error instanceof Closed || process.emitWarning(error);

module.exports = {
  SemaphoreError, TooHeavy, AcquireTimeout, PermitLost, Unavailable, Rejected, Unsupported, Closed, says, isPassing,
  isOfCluster, cluster, failure, warn,
};
