import "./dispose.js";

import { AsyncLocalStorage } from "node:async_hooks";

import { acquire } from "./acquire.js";
import { Connection } from "./connection.js";
import { attachLoss, isCancellation, LeaseholdError, type LockLost } from "./errors.js";
import type { Grant } from "./grant.js";
import { Lock } from "./lock.js";
import { checkKeys, type LockOptions, type Plan, plan, type TryLockOptions } from "./options.js";
import type { Transport } from "./transport.js";

/** Where the locks are. */
export interface LocksOptions {
  /** The name of the lock store, as the sidecar's component YAML has it. */
  store: string;
  /**
   * The sidecar's gRPC address: `host:port`, `http://…`, `https://…` or `unix:…`. Default: the
   * variable `DAPR_GRPC_ENDPOINT`, else 127.0.0.1 and `DAPR_GRPC_PORT`, else 127.0.0.1:50001.
   */
  address?: string | undefined;
  /** Sent as `dapr-api-token` with every call. Default: the variable `DAPR_API_TOKEN`. */
  apiToken?: string | undefined;
  /** The caller's own gRPC transport of Connect, used in place of an address, and left open by `close`. */
  transport?: Transport | undefined;
}

/** The work under a lock. */
export type Work<T> = (lock: Lock) => T | PromiseLike<T>;

/** The locks of one store. */
export class Locks implements Disposable {
  readonly #store: string;
  readonly #connection: Connection;
  /** The locks that the task holds in scopes with `reentrant`. */
  readonly #held = new AsyncLocalStorage<ReadonlyMap<string, Grant>>();

  /** Connects when the first lock is asked for. */
  constructor(options: LocksOptions) {
    // Callers without TypeScript may give none.
    if (typeof (options as LocksOptions | undefined)?.store !== "string" || options.store === "") {
      throw new LeaseholdError("INVALID_REQUEST", "store: must be the name of the lock store");
    }
    checkKeys(options, ["store", "address", "apiToken", "transport"] satisfies (keyof LocksOptions)[]);
    this.#store = options.store;
    this.#connection = new Connection(options);
  }

  /**
   * Waits for the lock, runs the work, and releases the lock when the work has ended.
   *
   * When the lock is lost, or the `signal` option aborts, `lock.signal` aborts, and the work is
   * awaited before anything else happens.
   *
   * @returns what the work returns.
   * @throws {NotAcquired} if somebody else had the lock until `wait` ended.
   * @throws {LockLost} if the lock was lost, after the work has ended. If the work threw an error
   *   of its own, that error instead; `lossOf` finds the loss in it.
   */
  with<T>(name: string, work: Work<T>): Promise<T>;
  with<T>(name: string, options: LockOptions | undefined, work: Work<T>): Promise<T>;
  async with<T>(name: string, ...rest: [Work<T>] | [LockOptions | undefined, Work<T>]): Promise<T> {
    const [options, work] = split(rest);
    const planned = plan(this.#store, name, options, false);
    return await this.#run(await this.#take(planned), planned, work);
  }

  /**
   * As `with`, but does not wait for the lock.
   *
   * @returns what the work returns; null if somebody else holds the lock, and the work was not run.
   */
  tryWith<T>(name: string, work: Work<T>): Promise<T | null>;
  tryWith<T>(name: string, options: TryLockOptions | undefined, work: Work<T>): Promise<T | null>;
  async tryWith<T>(
    name: string,
    ...rest: [Work<T>] | [TryLockOptions | undefined, Work<T>]
  ): Promise<T | null> {
    const [options, work] = split(rest);
    const planned = plan(this.#store, name, options, true);
    const grant = await this.#try(planned);
    return grant === null ? null : await this.#run(grant, planned, work);
  }

  /**
   * Waits for the lock. The caller ends it, by `await using` or `unlock`; both report a loss.
   *
   * @throws {NotAcquired} if somebody else had the lock until `wait` ended.
   */
  async lock(name: string, options: LockOptions = {}): Promise<Lock> {
    const planned = plan(this.#store, name, options, false);
    return new Lock(await this.#take(planned), planned.signal);
  }

  /** As `lock`, but does not wait: null if somebody else holds the lock. */
  async tryLock(name: string, options: TryLockOptions = {}): Promise<Lock | null> {
    const planned = plan(this.#store, name, options, true);
    const grant = await this.#try(planned);
    return grant === null ? null : new Lock(grant, planned.signal);
  }

  /**
   * Ends all waits and locks of this client, and closes the connection, but not the caller's
   * transport. The locks are lost, and released by the sidecar. The client takes no more locks.
   */
  close(): void {
    this.#connection.close();
  }

  /** The same as `close`, for `using`. */
  [Symbol.dispose](): void {
    this.close();
  }

  async #try(planned: Plan): Promise<Grant | null> {
    try {
      return await this.#take(planned);
    } catch (error) {
      if (error instanceof LeaseholdError && error.reason === "RESOURCE_LOCKED") {
        return null;
      }
      throw error;
    }
  }

  /** The task's own grant, if it may take it again, else a new one. */
  async #take(planned: Plan): Promise<Grant> {
    planned.signal?.throwIfAborted();
    const held = planned.reentrant ? this.#held.getStore()?.get(key(planned)) : undefined;
    if (held === undefined || held.released) {
      return await acquire(this.#connection, planned);
    }
    if (held.plan.mode !== planned.mode) {
      throw new LeaseholdError("INVALID_REQUEST", `mode: the lock is already held as ${held.plan.mode}`);
    }
    if (held.loss !== undefined) {
      throw held.loss;
    }
    held.share();
    return held;
  }

  async #run<T>(grant: Grant, planned: Plan, work: Work<T>): Promise<T> {
    const lock = new Lock(grant, planned.signal);
    const lost = grant.loss;
    if (lost !== undefined) {
      await lock.end();
      throw lost; // before the work has begun
    }
    let outcome: { value: T } | { error: unknown };
    try {
      outcome = { value: await this.#scope(grant, planned, () => work(lock)) };
    } catch (error) {
      outcome = { error };
    }
    const loss = await lock.end();
    if ("value" in outcome) {
      if (loss !== undefined) {
        throw loss;
      }
      return outcome.value;
    }
    throw reported(outcome.error, loss);
  }

  #scope<T>(grant: Grant, planned: Plan, work: () => T): T {
    if (!planned.reentrant) {
      return work();
    }
    return this.#held.run(new Map(this.#held.getStore()).set(key(planned), grant), work);
  }
}

/** The error that a scoped lock reports for work that threw one. */
function reported(error: unknown, loss: LockLost | undefined): unknown {
  if (loss === undefined || isCancellation(error, loss)) {
    return loss ?? error;
  }
  attachLoss(error, loss);
  return error;
}

function split<O extends object, T>(rest: [Work<T>] | [O | undefined, Work<T>]): [Partial<O>, Work<T>] {
  const [options, work] = rest.length === 1 ? [{}, rest[0]] : [rest[0] ?? {}, rest[1]];
  if (typeof work !== "function") {
    throw new LeaseholdError("INVALID_REQUEST", "work must be a function");
  }
  return [options, work];
}

function key({ namespace, name }: Plan): string {
  return JSON.stringify([...namespace, name]);
}
