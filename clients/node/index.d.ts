import type { RedisClientOptions } from "redis";

declare global {
  // Merges with the library of TypeScript 5.2 and newer.
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
}

/**
 * Options of node-redis's `createClient` that make sense here. What `url` says replaces the other options. `pingInterval` is for the connection for
 * commands: the one for wake-ups is checked every third of the heartbeat timeout anyway.
 */
export type RedisOptions = Pick<RedisClientOptions, Extract<keyof RedisClientOptions,
  | "url" | "socket" | "username" | "password" | "credentialsProvider" | "name" | "database"
  | "commandsQueueMaxLength" | "pingInterval" | "clientInfoTag" | "maintNotifications" | "maintEndpointType"
  | "maintRelaxedCommandTimeout" | "maintRelaxedSocketTimeout">>;

/** All times are in milliseconds. */
export interface ConnectOptions {
  /** What all keys and channels begin with: "sem" unless set. */
  prefix?: string;
  /** 15,000 unless set: a waiter that has not asked for so long is passed over. It asks every third. */
  heartbeatTimeout?: number;
  /** 2,000 unless set: after that a connection is taken for dead, and the call is repeated. */
  responseTimeout?: number;
  /** 30,000 unless set: for how long all calls may fail before a wait fails. */
  outageTolerance?: number;
}

export interface SemaphoreOptions {
  /** The total weight that may be held at once. The newest declaration is in force. */
  limit: number;
  /**
   * 30,000 ms unless set: how long the permit of a crashed process is held. A renewal has a sixth of it for
   * its answer. Without one the connection is taken for dead, which all semaphores of the client share:
   * their calls under way are repeated. So a sixth should be some round trips, with time for a busy server.
   */
  lease?: number;
  /**
   * The longest time in ms for which a permit is held, however often it is renewed. Then the permit is lost. It
   * limits the harm if work hangs. Without end unless set.
   */
  maxHold?: number;
}

export interface TryOptions {
  /** How much of the limit the permit takes: 1 unless set. */
  weight?: number;
  /** Gives the request up: it leaves the queue, and the acquire rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface AcquireOptions extends TryOptions {
  /**
   * Rejects with AcquireTimeout after so many ms; a fraction counts as a whole one. 0 or less, as what is
   * left of a deadline may be, only tries.
   */
  timeout?: number;
}

/**
 * A client: two connections to Redis, for as many semaphores as you like. It keeps the process alive only while
 * something of it waits, is held or is being released.
 */
export class SemaphoreClient {
  private constructor();
  /**
   * `redis` is a URL, or options for node-redis. Rejects at once if the server cannot be used. Anything
   * else, such as a client, or an option that there is not, is a TypeError. So is a URL that cannot be used; the
   * error contains no part of the URL. A cluster or a Sentinel is Unsupported.
   */
  static connect(redis: string | RedisOptions, options?: ConnectOptions): Promise<SemaphoreClient>;
  /**
   * While anything of a name waits or is held, that is the one object of that name. Other options for
   * it are a RangeError then, here and from acquires of an object that was made before.
   */
  semaphore(name: string, options: SemaphoreOptions): Semaphore;
  /**
   * Ends all waits, and disconnects when all permits are released or lost. Those that are held are not
   * taken away, but renewed no more, so that takes a lease at most.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A semaphore by its name. Keep it: it declares its limit once, and renews its permits together. */
export class Semaphore {
  private constructor();
  readonly name: string;
  readonly limit: number;
  readonly lease: number;
  readonly maxHold: number | undefined;
  /** Waits in the queue for a permit. */
  acquire(options?: AcquireOptions): Promise<Permit>;
  /**
   * A permit if one is free and nobody waits, else null. Rejects with Unavailable if there is no answer
   * within two response timeouts.
   */
  tryAcquire(options?: TryOptions): Promise<Permit | null>;
  /**
   * Calls back with a permit and gives it back afterwards. Rejects with PermitLost if the permit was
   * lost meanwhile: what the callback did was not protected to its end. Where giving back is not
   * confirmed in time, the process emits a warning.
   */
  use<T>(callback: (permit: Permit) => T | PromiseLike<T>, options?: AcquireOptions): Promise<T>;
}

/**
 * A permit, renewed in the background until it is released or lost. Keep it until then: if the program drops it, it is
 * lost when it is garbage-collected, and the process emits a warning.
 */
export class Permit {
  private constructor();
  /** The ID by which the server knows it. */
  readonly id: string;
  readonly weight: number;
  /** It grows with every grant. Below 2^53. */
  readonly fencingToken: number;
  /** Aborted when the permit is lost, with Redis in reach or not. The reason is a PermitLost. */
  readonly lost: AbortSignal;
  /** Exact even where the event loop was too busy to tell `lost` in time. */
  readonly isLost: boolean;
  /** For how many ms it is held, unless it is renewed before. 0 once it is lost. */
  readonly expiresIn: number;
  /**
   * Repeated until Redis confirms it, for up to a lease. Resolves to false if the permit had been lost
   * before: then it was given back in the background already. Rejects with Unavailable or Rejected if it
   * is not confirmed within two response timeouts, and goes on in the background. Another call waits
   * once more.
   */
  release(): Promise<boolean>;
  /** Gives it back. Where that is not confirmed in time, the process emits a warning. */
  [Symbol.asyncDispose](): Promise<void>;
}

export type SemaphoreErrorCode =
  | "SEM_LEASE_TOO_SHORT" | "SEM_TOO_HEAVY" | "SEM_TIMEOUT" | "SEM_LOST" | "SEM_UNAVAILABLE" | "SEM_REJECTED"
  | "SEM_UNSUPPORTED" | "SEM_CLOSED";

/** What all errors of this client have in common. Itself: a lease is too short for the round trip. */
export class SemaphoreError extends Error {
  /** Stable, also in a minified bundle and between two copies of this package. */
  readonly code: SemaphoreErrorCode;
}

/** The request weighs more than the limit, so it could never be granted. */
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
  /** The last known position in the queue, where 1 is the head. */
  readonly position?: number;
}

/** The lease has ended: somebody else may hold the permit now. */
export class PermitLost extends SemaphoreError {
  readonly code: "SEM_LOST";
  readonly semaphore: string;
  readonly id: string;
}

/**
 * Calls have failed for too long: for the outage tolerance, or for two response timeouts where it is about a
 * try or a release.
 */
export class Unavailable extends SemaphoreError {
  readonly code: "SEM_UNAVAILABLE";
  readonly semaphore: string;
  readonly operation: string;
  readonly cause: Error;
}

/** Redis answered with an error that will not pass by itself. */
export class Rejected extends SemaphoreError {
  readonly code: "SEM_REJECTED";
  readonly semaphore: string;
  readonly operation: string;
  readonly cause: Error;
}

/** The server or its user cannot be used: a right is missing, it is a replica or a cluster, it is too old. */
export class Unsupported extends SemaphoreError {
  readonly code: "SEM_UNSUPPORTED";
}

/** `close` was called. */
export class Closed extends SemaphoreError {
  readonly code: "SEM_CLOSED";
}
