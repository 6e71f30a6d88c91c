// A lock that is held: what the stream and CheckLocks report about it, and when it is lost.

import { fromMessage, MILLISECOND, SECOND, toMilliseconds } from "./duration.js";
import { LockLost, type LossCause } from "./errors.js";
import { Alarm, now } from "./clock.js";
import type { Rpc } from "./connection.js";
import type { LockAcquired, LockServerStream } from "./generated/leasehold/v1/locks_pb.js";
import type { Plan } from "./options.js";
import { statusOf } from "./status.js";

const UNLOCK_LIMIT_MS = 5_000;
const LONGEST_QUESTION = 5n * SECOND;
const LONGEST_STOP = 5n * SECOND;

/** A stream that has the lock. */
export interface HeldStream {
  rpc: Rpc;
  plan: Plan;
  acquired: LockAcquired;
  /** When the request was sent. */
  sentAt: bigint;
  /** The messages that follow. */
  rest: AsyncIterator<LockServerStream>;
  /** Closes the stream. */
  closer: AbortController;
  /** Called when the connection did not answer in time. */
  onSilence: () => void;
}

function least(...values: [bigint, ...bigint[]]): bigint {
  return values.reduce((a, b) => (b < a ? b : a));
}

/** A lock, from when it is acquired until it is unlocked or lost. Several handles may share it. */
export class Grant {
  readonly acquired: LockAcquired;
  readonly plan: Plan;
  readonly #stream: HeldStream;
  readonly #ttl: bigint;
  /** By how much a TTL may differ between the clocks of this machine and of the store's. */
  readonly #drift: bigint;
  readonly #stopBefore: bigint;
  /** When `maxHold` has passed, counted from the earliest time of the grant. */
  readonly #holdEnd: bigint | undefined;
  readonly #deadline = new Alarm();
  readonly #question = new Alarm();
  readonly #listeners = new Set<(loss: LockLost) => void>();
  #safeDeadline: bigint;
  #shares = 1;
  #loss: LockLost | undefined;

  constructor(stream: HeldStream) {
    this.#stream = stream;
    this.acquired = stream.acquired;
    this.plan = stream.plan;
    const { sentAt, acquired, plan } = stream;
    this.#ttl = fromMessage(acquired.ttl);
    this.#drift = this.#ttl / 20n + 20n * MILLISECOND;
    this.#stopBefore =
      plan.stopBefore ?? least(least(this.#ttl, plan.maxHold ?? this.#ttl) / 10n, LONGEST_STOP);
    const grantedAt = sentAt + fromMessage(acquired.waited);
    this.#holdEnd = plan.maxHold === undefined ? undefined : grantedAt + plan.maxHold;
    this.#safeDeadline = this.#capped(grantedAt + this.#ttl - this.#drift);
  }

  /** Whether the safe deadline has passed, so that the lock counts as not acquired: step 4. */
  get isTooLate(): boolean {
    return this.#safeDeadline <= now();
  }

  /** Whether the caller's `stopBefore` leaves any time of the TTL for the work. */
  get leavesTime(): boolean {
    return this.plan.stopBefore === undefined || this.#stopBefore < this.#ttl - this.#drift;
  }

  /** Begins to watch over the lock. */
  start(): void {
    void this.#read();
    this.#setDeadline(this.#safeDeadline);
    this.#askAt(now() + this.#ttl / 6n);
  }

  get released(): boolean {
    return this.#shares === 0;
  }

  /** The loss, if the lock is lost, also if the clock shows it only now. */
  get loss(): LockLost | undefined {
    this.#loseIfLate();
    return this.#loss;
  }

  /** Nanoseconds until the work is cancelled unless the lock is confirmed. */
  get validFor(): bigint {
    return this.released || this.loss !== undefined ? 0n : this.#lostAt - now();
  }

  /** Calls back once when the lock is lost. Returns how to stop that. */
  onLoss(listener: (loss: LockLost) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Another handle has the lock too. */
  share(): void {
    this.#shares += 1;
  }

  /** A handle ends. The last one unlocks; never throws. */
  async release(): Promise<LockLost | undefined> {
    this.#shares -= 1;
    if (this.#shares > 0) {
      return this.#loss;
    }
    this.#stopTimers();
    if (this.#loss === undefined) {
      await this.#unlock();
    }
    this.#stream.closer.abort();
    return this.#loss;
  }

  get #lostAt(): bigint {
    return this.#safeDeadline - this.#stopBefore;
  }

  get #name() {
    const { store, name, namespace } = this.plan;
    return { storeName: store, resourceId: name, namespace: [...namespace], lockId: this.acquired.lockId };
  }

  async #unlock(): Promise<void> {
    const { calls, options } = this.#stream.rpc;
    try {
      await calls.unlock(this.#name, { ...options, timeoutMs: UNLOCK_LIMIT_MS });
    } catch (error) {
      // After any other failure the end of the stream releases the lock.
      const { reason, metadata } = statusOf(error);
      if (reason === "LOCK_LOST" || reason === "LOCK_NOT_FOUND") {
        this.#loss = new LockLost(this.plan.name, metadata.get("cause") ?? "ended");
      }
    }
  }

  async #read(): Promise<void> {
    try {
      while ((await this.#stream.rest.next()).done !== true);
      this.#lose("ended");
    } catch (error) {
      const { reason, metadata } = statusOf(error);
      if (reason === "LOCK_LOST") {
        this.#lose(metadata.get("cause") ?? "ended");
      } else {
        this.#lose(reason === "SHUTTING_DOWN" ? "shutting_down" : "disconnected");
      }
    } finally {
      this.#stream.closer.abort();
    }
  }

  #setDeadline(safeDeadline: bigint): void {
    this.#safeDeadline = this.#capped(safeDeadline);
    this.#deadline.set(this.#lostAt, () => {
      this.#loseIfLate();
    });
  }

  /** No deadline is later than the end of `maxHold`: step 5. */
  #capped(safeDeadline: bigint): bigint {
    return this.#holdEnd === undefined ? safeDeadline : least(safeDeadline, this.#holdEnd);
  }

  #askAt(time: bigint): void {
    this.#question.set(time, () => void this.#ask());
  }

  /** Asks for how long the lock is valid, and sets the time of the next question: step 2. */
  async #ask(): Promise<void> {
    const askedAt = now();
    const { calls, options } = this.#stream.rpc;
    const sixth = this.#ttl / 6n;
    const timeoutMs = Math.max(Math.floor(toMilliseconds(least(sixth, LONGEST_QUESTION))), 1);
    const { signal } = this.#stream.closer; // a question does not outlive its lock
    let nextAt = askedAt + sixth;
    try {
      const answer = await calls.checkLocks({ locks: [this.#name] }, { ...options, timeoutMs, signal });
      const [check] = answer.locks;
      // An answer that was read too late, because the process was suspended, revives nothing.
      if (this.loss === undefined && check !== undefined) {
        if (check.validFor === undefined) {
          this.#lose(check.cause || "ended");
        } else if (!this.released) {
          this.#setDeadline(askedAt + fromMessage(check.validFor));
        }
      }
    } catch {
      nextAt = askedAt + this.#ttl / 60n;
    }
    if (this.loss === undefined && !this.released) {
      this.#askAt(nextAt);
    }
  }

  /** Compares with the clock: step 3. A loss is reported at once. */
  #loseIfLate(): void {
    if (this.#lostAt <= now()) {
      // The sidecar's own figure counts maxHold too, and may be earlier than the end by the drift.
      const isHoldEnd = this.#holdEnd !== undefined && this.#safeDeadline >= this.#holdEnd - this.#drift;
      this.#lose(isHoldEnd ? "max_hold" : "unconfirmed");
    }
  }

  /** The lock is lost, unless it already is or has ended. Does not throw. */
  #lose(cause: LossCause): void {
    if (this.released || this.#loss !== undefined) {
      return;
    }
    const loss = new LockLost(this.plan.name, cause);
    this.#loss = loss;
    this.#stopTimers();
    if (cause === "unconfirmed") {
      this.#stream.onSilence();
    }
    for (const listener of this.#listeners) {
      listener(loss);
    }
  }

  #stopTimers(): void {
    this.#deadline.clear();
    this.#question.clear();
  }
}
