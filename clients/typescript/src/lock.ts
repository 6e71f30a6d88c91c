import "./dispose.js";

import { toMilliseconds } from "./duration.js";
import { LockLost } from "./errors.js";
import type { Grant } from "./grant.js";
import type { Plan } from "./options.js";
import { onAbort } from "./signals.js";

/** A lock that is held. Not bound to a task: any task may use it and unlock it. */
export class Lock implements AsyncDisposable {
  /** The lock's name. */
  readonly resource: string;
  /** The fencing token, of up to 63 bits: a later holder has a greater one. */
  readonly token: bigint;
  /** The key of the lock for fences, with its store: `STORE||NAME`, or `STORE||SEGMENT/SEGMENT//NAME`. */
  readonly fenceKey: string;
  /** The proof of ownership: a secret. */
  readonly lockId: string;
  /** The public ID of the grant; empty if the store has none. */
  readonly grantId: string;
  /**
   * Aborted when the lock is lost, with the `LockLost` as its reason, or by the `signal` option,
   * with the reason of that. Not aborted by `unlock`.
   */
  readonly signal: AbortSignal;

  readonly #grant: Grant;
  readonly #detach: () => void;
  #unlocked: Promise<LockLost | undefined> | undefined;
  /** The loss that this handle had seen when it ended. */
  #lossAtEnd: LockLost | undefined;
  /** Whether `check` has thrown the loss. */
  #isReported = false;

  /** @internal */
  constructor(grant: Grant, signal: AbortSignal | undefined) {
    this.#grant = grant;
    this.resource = grant.plan.name;
    this.fenceKey = fenceKey(grant.plan);
    this.token = grant.acquired.fencingToken;
    this.lockId = grant.acquired.lockId;
    this.grantId = grant.acquired.grantId;
    const controller = new AbortController();
    this.signal = controller.signal;
    const cancel = () => {
      controller.abort(signal?.reason);
    };
    const forget = grant.onLoss((loss) => {
      controller.abort(loss);
    });
    const unwatch = signal === undefined ? undefined : onAbort(signal, cancel);
    if (signal?.aborted === true) {
      cancel();
    } else if (grant.loss !== undefined) {
      controller.abort(grant.loss);
    }
    this.#detach = () => {
      forget();
      unwatch?.();
    };
  }

  /**
   * For how many milliseconds the work may go on unless the lock is confirmed meanwhile, which
   * extends it. 0 once the lock is lost or unlocked. Reads the clock, makes no call.
   */
  get validFor(): number {
    return this.#unlocked === undefined ? toMilliseconds(this.#grant.validFor) : 0;
  }

  /**
   * Throws `LockLost` if the lock is lost, or unlocked (cause `ended`). Reads the clock, makes no
   * call; for work that blocks, or that cannot be given a signal.
   */
  check(): void {
    if (this.#unlocked !== undefined) {
      // This handle does not report what happens to a shared grant after its own end.
      throw this.#lossAtEnd ?? new LockLost(this.resource, "ended");
    }
    const { loss } = this.#grant;
    if (loss !== undefined) {
      this.#isReported = true;
      throw loss;
    }
  }

  /**
   * Ends the lock. Takes 5 s at most: if the sidecar does not answer, the end of the stream
   * releases the lock. A second call waits for the first, and does nothing else.
   *
   * @throws {LockLost} if the lock was lost before.
   */
  async unlock(): Promise<void> {
    const isFirst = this.#unlocked === undefined;
    const loss = await this.end();
    if (isFirst && loss !== undefined) {
      throw loss;
    }
  }

  /**
   * The same as `unlock`, for `await using`, but does not throw a loss that `check` has thrown: the
   * block would end with a `SuppressedError` in place of it.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    await (this.#isReported ? this.end() : this.unlock());
  }

  /** Ends the lock, and returns the loss, if there was one. @internal */
  end(): Promise<LockLost | undefined> {
    // A loss that only the clock shows yet is reported first, and its listeners may call this.
    const { loss } = this.#grant;
    if (this.#unlocked === undefined) {
      this.#lossAtEnd = loss;
      this.#unlocked = this.#grant.release();
      this.#detach();
    }
    return this.#unlocked;
  }
}

/** The clients of all languages make the same key; different locks have different keys. */
function fenceKey({ store, namespace, name }: Plan): string {
  const escape = (part: string) => part.replace(/[%/|]/g, encodeURIComponent);
  const prefix = namespace.length === 0 ? "" : `${namespace.map(escape).join("/")}//`;
  return `${escape(store)}||${prefix}${escape(name)}`;
}
