/**
 * The base class of all errors of this library, apart from the reason of a caller's own signal and
 * what the work itself throws. A call that failed has the error of the transport as `cause`.
 */
export class LeaseholdError extends Error {
  override readonly name: string = "LeaseholdError";
  /**
   * The reason that the sidecar gave (`STORE_NOT_FOUND`, `INVALID_REQUEST`, …), else the name of
   * the gRPC code (`UNAVAILABLE`, `UNAUTHENTICATED`, …). An option that is refused before
   * anything is sent has `INVALID_REQUEST`.
   */
  readonly reason: string;

  constructor(reason: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

/** Somebody else had the lock until the wait ended. */
export class NotAcquired extends LeaseholdError {
  override readonly name = "NotAcquired";
  /** Who has the lock, as `APP/INSTANCE/LABEL`, if the sidecar named it. For people. */
  readonly holder: string | undefined;

  constructor(
    reason: "RESOURCE_LOCKED" | "WAIT_DEADLINE",
    message: string,
    options?: ErrorOptions & { holder?: string | undefined },
  ) {
    super(reason, message, options);
    this.holder = options?.holder;
  }
}

/**
 * Why a lock was lost.
 *
 * - `expired`, `forced`, `unreachable`, `max_hold`, `unhealthy`: as the sidecar reports it.
 * - `shutting_down`: the sidecar is stopping and has released the lock.
 * - `ended`: it was unlocked or taken over by another call, or the sidecar does not hold it.
 * - `disconnected`: the stream broke.
 * - `unconfirmed`: nobody confirmed the lock in time.
 *
 * A later sidecar may report other causes.
 */
export type LossCause =
  | "expired"
  | "forced"
  | "unreachable"
  | "max_hold"
  | "unhealthy"
  | "shutting_down"
  | "ended"
  | "disconnected"
  | "unconfirmed"
  | (string & Record<never, never>);

/** The lock is lost: somebody else may hold it now. */
export class LockLost extends LeaseholdError {
  override readonly name = "LockLost";
  /** Why. A string, unlike the `cause` of most errors. */
  override readonly cause: LossCause;
  /** The lock's name. */
  readonly resource: string;

  constructor(resource: string, cause: LossCause) {
    super("LOCK_LOST", `the lock ${JSON.stringify(resource)} is lost: ${cause}`);
    this.cause = cause;
    this.resource = resource;
  }
}

const LOSS = Symbol.for("leasehold.loss");
const CANCELLED_NAMES = new Set<unknown>(["AbortError", "CanceledError"]);

/**
 * The loss of a lock that is in an error: the error itself, or what it was caused by, or what
 * was attached to it because the lock was lost while the work failed by itself, or either half of
 * a `SuppressedError` (of `await using`). `undefined` if there is none.
 */
export function lossOf(error: unknown): LockLost | undefined {
  return search(error, new Set());
}

function search(error: unknown, seen: Set<unknown>): LockLost | undefined {
  if (error instanceof LockLost) {
    return error;
  }
  if (!isObject(error) || seen.has(error)) {
    return undefined;
  }
  seen.add(error);
  for (const inner of [error[LOSS], error.cause, error.error, error.suppressed]) {
    const found = search(inner, seen);
    if (found !== undefined) {
      return found;
    }
  }
  return undefined;
}

/** Attaches the loss to an error of the work; one that cannot have properties stays as it is. */
export function attachLoss(error: unknown, loss: LockLost): void {
  if (isObject(error) && Object.isExtensible(error)) {
    Object.defineProperty(error, LOSS, { value: loss, enumerable: true, configurable: true });
  }
}

/**
 * Whether the work reports by this error that it was cancelled, and no failure of its own: the
 * signal's reason, an error that was caused by it, or an error of a cancelled call that does not
 * say what has cancelled it.
 */
export function isCancellation(error: unknown, loss: LockLost): boolean {
  const seen = new Set<unknown>();
  for (let inner = error; inner !== loss; inner = inner.cause) {
    if (!isObject(inner) || seen.has(inner)) {
      return isObject(error) && error.cause === undefined && isCancelledCall(error);
    }
    seen.add(inner);
  }
  return true;
}

/** `AbortError` of Node and browsers, `CanceledError` of axios, or gRPC's code 1, CANCELLED. */
function isCancelledCall(error: Record<PropertyKey, unknown>): boolean {
  return CANCELLED_NAMES.has(error.name) || (error.name === "ConnectError" && error.code === 1);
}

function isObject(value: unknown): value is Record<PropertyKey, unknown> {
  return typeof value === "object" && value !== null;
}
