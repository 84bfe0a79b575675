"use strict";

const { ErrorReply } = require("redis");

/**
 * What all errors of this client have in common: a name that a minifier leaves alone, and a code, which also tells
 * them apart where two copies of this package are loaded. Itself: a lease is too short for the round trip.
 */
class SemaphoreError extends Error {}

/** The request weighs more than the limit, so it could never be granted. */
class TooHeavy extends SemaphoreError {
  constructor(semaphore, weight, limit) {
    super(`semaphore ${semaphore}: a weight of ${weight} can never fit the limit of ${limit}`);
    Object.assign(this, { semaphore, weight, limit });
  }
}

/** The wait took longer than the timeout of the acquire. The request leaves the queue. */
class AcquireTimeout extends SemaphoreError {
  constructor(semaphore, timeout, position) {
    const reached = position ? `last at position ${position}` : "the queue was not reached";
    super(`semaphore ${semaphore}: no permit within ${timeout} ms, ${reached}`);
    Object.assign(this, { semaphore, timeout, position });
  }
}

/** The lease has ended: somebody else may hold the permit now. */
class PermitLost extends SemaphoreError {
  constructor(semaphore, id, why, cause) {
    super(`semaphore ${semaphore}: the permit ${id} is lost: ${why}`, cause && { cause });
    Object.assign(this, { semaphore, id });
  }
}

/** An acquire has failed for the outage tolerance, a try or a release for two response timeouts. */
class Unavailable extends SemaphoreError {
  constructor(semaphore, operation, cause) {
    super(`semaphore ${semaphore}: ${operation} has failed for too long: ${cause.message}`, { cause });
    Object.assign(this, { semaphore, operation });
  }
}

/** Redis answered with an error that will not pass by itself. `cause` is that error. */
class Rejected extends SemaphoreError {
  constructor(semaphore, operation, cause) {
    super(`semaphore ${semaphore}: ${operation} was refused: ${cause.message}`, { cause });
    Object.assign(this, { semaphore, operation });
  }
}

/** The server or its user cannot be used: a right is missing, it is a replica or a cluster, it is too old. */
class Unsupported extends SemaphoreError {}

/** `close` was called. */
class Closed extends SemaphoreError {
  constructor() {
    super("the semaphores were closed");
  }
}

/** Literals, as minifiers rename classes. */
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

/** Redis 6.2 puts words in front of an error that a command inside a script caused. */
const says = (error, codes) =>
  error instanceof ErrorReply && new RegExp(`^(?:ERR .*-)?(?:${codes}) `).test(error.message);

/** Whether a call that failed so is to be repeated: the connection's fault, or a passing state. */
const isPassing = (error) =>
  error instanceof ErrorReply ? says(error, PASSING) : !(error instanceof SemaphoreError || error instanceof TypeError);

const cluster = (cause) =>
  new Unsupported(
    "this server is a node of a Redis Cluster, which this client does not support. " +
      "Connect to a server that is not in cluster mode, or use the Rust crate",
    cause && { cause },
  );

/** What only a node of a cluster replies. */
const isOfCluster = (error) => says(error, "MOVED|ASK|CROSSSLOT|TRYAGAIN|CLUSTERDOWN");

/** What whoever asked hears of a call that failed for too long, or for good. */
function failure(semaphore, operation, error = new Error("no answer yet")) {
  if (error instanceof Closed) return error;
  if (isOfCluster(error)) return cluster(error);
  return new (isPassing(error) ? Unavailable : Rejected)(semaphore, operation, error);
}

/** What fails in the background. A client that was closed is no news. */
const warn = (error) => error instanceof Closed || process.emitWarning(error);

module.exports = {
  SemaphoreError, TooHeavy, AcquireTimeout, PermitLost, Unavailable, Rejected, Unsupported, Closed, says, isPassing,
  isOfCluster, cluster, failure, warn,
};
