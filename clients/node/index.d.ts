import type { RedisClientOptions } from "redis";

declare global {
  // Merges with the library of TypeScript 5.2 and newer.
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
}

/**
 * The supported options of node-redis's `createClient`. Parts of `url` replace the other options. `pingInterval` is
 * for the connection for commands, and 0 means no pings. The subscription is always checked every third of the
 * heartbeat timeout.
 */
export type RedisOptions = {
  [Option in Extract<keyof RedisClientOptions,
    | "url" | "username" | "password" | "credentialsProvider" | "name" | "database"
    | "commandsQueueMaxLength" | "pingInterval">]?: RedisClientOptions[Option] | undefined;
} & {
  /** `responseTimeout` replaces the timeouts for connecting, and the client reconnects by itself. */
  socket?: NonNullable<RedisClientOptions["socket"]>
    & { connectTimeout?: undefined; timeout?: undefined; reconnectStrategy?: undefined } | undefined;
};

/** All times are in milliseconds. */
export interface ConnectOptions {
  /** The prefix of all keys and channels. Default: "sem". */
  prefix?: string | undefined;
  /** The server skips this client's requests if the client has sent no heartbeat for this long. Default: 15,000. */
  heartbeatTimeout?: number | undefined;
  /** The timeout of one attempt, except a refresh. Afterwards, the connection counts as dead. Default: 2,000. */
  responseTimeout?: number | undefined;
  /** How long a wait survives without successful replies. Default: 30,000. */
  outageTolerance?: number | undefined;
}

export interface SemaphoreOptions {
  /** The total weight that may be held at the same time. The newest declaration applies. */
  limit: number;
  /**
   * How long in ms a permit stays valid without being refreshed. A crashed process's permit stays taken for up to this
   * long. Default: 30,000. A refresh fails after a sixth of the lease, and then the connection of all semaphores of
   * the client counts as dead. So a sixth of the lease must be longer than several round trips.
   */
  lease?: number | undefined;
  /**
   * The longest time in ms for which a permit is held, however often it is refreshed. Then the permit is lost. This
   * bound limits the harm of work that hangs. Default: no bound.
   */
  maxHold?: number | undefined;
  /** The share of each group that has none of its own. Range: 1 to 1,000. Default: 1. */
  groupShare?: number | undefined;
  /** The cap of each group that has none of its own. Range: 1 to 4,294,967,295. Default: no cap. */
  groupCap?: number | undefined;
}

/**
 * A group of requests, such as the requests of one tenant. All requests without a group form one more group, with a
 * share of 1 and no cap.
 *
 * Derive the name from an authenticated identity: a caller that may choose names can invent groups, and each of them
 * has a share.
 */
export interface Group {
  /** 1 to 64 letters, digits, ".", "_" or "-". */
  name: string;
  /**
   * If several groups wait, they are granted weight in proportion to their shares. Shares divide grants, not time. Range:
   * 1 to 1,000. Default: `groupShare` of the semaphore.
   */
  share?: number | undefined;
  /**
   * The weight that the group may hold at the same time. While the group is at its cap, its requests delay no other
   * group. Range: the weight of the request to 4,294,967,295. Default: `groupCap` of the semaphore.
   */
  cap?: number | undefined;
}

export interface TryOptions {
  /** How much of the limit the permit takes. Default: 1. */
  weight?: number | undefined;
  /** The name of a group, or a group with its own share and cap. Default: no group. */
  group?: string | Group | undefined;
  /** Cancels the request: it leaves the queue, and the acquire rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface AcquireOptions extends TryOptions {
  /**
   * Rejects with AcquireTimeout after this many ms, rounded up. With 0 or less, the request does not wait. So the
   * timeout may be the remaining time until a deadline. At most 604,800,000. Default: no bound.
   */
  timeout?: number | undefined;
}

/**
 * A client: two connections to Redis, for any number of semaphores. It keeps the process alive only while requests wait,
 * or permits are held or being released.
 */
export class SemaphoreClient {
  private constructor();
  /**
   * Connects. `redis` is a URL, or options of node-redis. Rejects immediately if the server cannot be used:
   *
   * - with Unsupported if the server is a cluster, a sentinel or too old, or the user lacks a right
   * - with Rejected after another error of Redis, such as a wrong password
   * - otherwise with Unavailable
   *
   * Rejects with a TypeError for a wrong URL, an unknown option, an option of a wrong type, or another value, such as a
   * client, and with a RangeError for a wrong number. No error contains the password. An error of Redis may name the user.
   */
  static connect(redis: string | RedisOptions, options?: ConnectOptions): Promise<SemaphoreClient>;
  /**
   * Returns the semaphore of this name. While its requests wait or its permits are held, this is always the same
   * object. During that time, other options for the name cause a RangeError, both here and in acquires of an earlier
   * object.
   */
  semaphore(name: string, options: SemaphoreOptions): Semaphore;
  /**
   * Ends all waits, and disconnects when all permits are released or lost. Permits are no longer refreshed, so this takes
   * at most one lease, and two response timeouts more if Redis does not reply. A client that is not closed keeps its
   * connections, even if the program has dropped it.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A semaphore. Keep the object: it declares its limit once, and refreshes its permits together. */
export class Semaphore {
  private constructor();
  readonly name: string;
  readonly limit: number;
  readonly lease: number;
  readonly maxHold: number | undefined;
  readonly groupShare: number;
  readonly groupCap: number | undefined;
  /** Waits in the queue for a permit. */
  acquire(options?: AcquireOptions): Promise<Permit>;
  /**
   * Resolves to a permit, or to null if none is free or other requests wait. Rejects with Unavailable if there is no reply
   * within two response timeouts.
   */
  tryAcquire(options?: TryOptions): Promise<Permit | null>;
  /**
   * Calls the callback with a permit, and releases the permit afterwards. Rejects with PermitLost if the permit was lost in
   * the meantime, because the end of the work was not protected. If Redis does not confirm the release in time, the
   * process emits a warning.
   */
  use<T>(callback: (permit: Permit) => T | PromiseLike<T>, options?: AcquireOptions): Promise<T>;
}

/**
 * A permit, refreshed in the background until it is released or lost. Keep it until then. A dropped permit is lost when
 * it is garbage-collected, and the process emits a warning.
 */
export class Permit {
  private constructor();
  /** The ID of the permit on the server. */
  readonly id: string;
  readonly weight: number;
  /** Grows with every grant. Below 2^53. */
  readonly fencingToken: number;
  /** Aborted when the permit is lost, even if Redis is unreachable. The reason is a PermitLost. */
  readonly lost: AbortSignal;
  /** Whether the permit is lost now, even if the event loop was too busy to abort `lost` in time. */
  readonly isLost: boolean;
  /** For how many ms the permit is held unless it is refreshed. 0 if it was released or lost. */
  readonly expiresIn: number;
  /**
   * Releases the permit, with retries for up to a lease until Redis confirms it. Resolves to false if the permit was
   * already lost. Rejects with Unavailable or Rejected if Redis does not confirm within two response timeouts; the
   * retries continue in the background. Another call waits again. The end of `close` also ends the retries, and then
   * this rejects with Closed.
   */
  release(): Promise<boolean>;
  /** Releases the permit. If Redis does not confirm in time, the process emits a warning. */
  [Symbol.asyncDispose](): Promise<void>;
}

export type SemaphoreErrorCode =
  | "SEM_LEASE_TOO_SHORT" | "SEM_TOO_HEAVY" | "SEM_TIMEOUT" | "SEM_LOST" | "SEM_UNAVAILABLE" | "SEM_REJECTED"
  | "SEM_UNSUPPORTED" | "SEM_CLOSED";

/**
 * The base class of all errors of this client. An instance of this class itself means that a lease is too short for the
 * round trip.
 */
export class SemaphoreError extends Error {
  /** The code does not change in a minified bundle, or in another copy of this package. */
  readonly code: SemaphoreErrorCode;
}

/** The request exceeds the limit, so it can never be granted. */
export class TooHeavy extends SemaphoreError {
  readonly code: "SEM_TOO_HEAVY";
  readonly semaphore: string;
  readonly weight: number;
  readonly limit: number;
}

/** The wait took longer than its timeout. The request leaves the queue. */
export class AcquireTimeout extends SemaphoreError {
  readonly code: "SEM_TIMEOUT";
  readonly semaphore: string;
  readonly timeout: number;
  /** The last known position in the queue; 1 is the head. If there are groups, the position in the request's group. */
  readonly position?: number | undefined;
}

/** The permit is lost, so another client may hold it now. */
export class PermitLost extends SemaphoreError {
  readonly code: "SEM_LOST";
  readonly semaphore: string;
  readonly id: string;
}

/**
 * A wait has failed for the outage tolerance, another call has failed for two response timeouts, or `connect` has
 * failed. The server cannot be reached, or cannot serve the call now, for example because it is a replica. The text
 * has the address and the failed step.
 */
export class Unavailable extends SemaphoreError {
  readonly code: "SEM_UNAVAILABLE";
  /** Undefined for `connect`. */
  readonly semaphore: string | undefined;
  /** "acquire", "release" or "connect". */
  readonly operation: string;
  readonly cause: Error;
}

/** Redis returned a permanent error. */
export class Rejected extends SemaphoreError {
  readonly code: "SEM_REJECTED";
  /** Undefined for `connect`. */
  readonly semaphore: string | undefined;
  /** "acquire", "release" or "connect". */
  readonly operation: string;
  readonly cause: Error;
}

/**
 * The server is a cluster or a sentinel, or `connect` has found that the server is too old or the user lacks a right. If
 * the user loses a right later, calls reject with Rejected.
 */
export class Unsupported extends SemaphoreError {
  readonly code: "SEM_UNSUPPORTED";
  /** The error of Redis, if there is one. */
  readonly cause?: Error | undefined;
}

/** The client was closed. */
export class Closed extends SemaphoreError {
  readonly code: "SEM_CLOSED";
}
