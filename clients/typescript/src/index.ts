/**
 * Distributed locks through a leasehold sidecar. A lost lock becomes cancelled work.
 *
 * @packageDocumentation
 */
export type { Duration } from "./duration.js";
export { LeaseholdError, LockLost, type LossCause, lossOf, NotAcquired } from "./errors.js";
export type { Lock } from "./lock.js";
export { Locks, type LocksOptions, type Work } from "./locks.js";
export type { LockOptions, TryLockOptions } from "./options.js";
export type { Transport } from "./transport.js";
