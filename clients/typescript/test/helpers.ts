import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { after, before, describe } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { LeaseholdError, type Lock, LockLost, NotAcquired } from "../src/index.js";
import { BACKENDS, Sidecar } from "./sidecar.js";

const PATIENCE_MS = 30_000;

export const fresh = (): string => `ts-${randomUUID()}`;

/** Defines tests for each backend, with a sidecar that they share. */
export function onEachBackend(define: (backend: string, sidecar: () => Sidecar) => void): void {
  for (const backend of BACKENDS) {
    describe(backend, { concurrency: 6, timeout: 120_000 }, () => {
      let sidecar: Sidecar | undefined;
      before(async () => {
        sidecar = await Sidecar.start(backend);
      });
      after(async () => {
        await sidecar?.[Symbol.asyncDispose]();
      });
      define(backend, () => {
        assert(sidecar !== undefined);
        return sidecar;
      });
    });
  }
}

export async function eventually(what: string, check: () => Promise<boolean> | boolean): Promise<void> {
  const end = performance.now() + PATIENCE_MS;
  while (!(await check())) {
    assert(performance.now() < end, `not in time: ${what}`);
    await sleep(20);
  }
}

/** Waits until the work is to stop. The error is the signal's reason. */
export async function cancelled(lock: Lock): Promise<never> {
  if (!lock.signal.aborted) {
    await once(lock.signal, "abort", { signal: AbortSignal.timeout(PATIENCE_MS) });
  }
  throw lock.signal.reason;
}

export async function failure(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("it did not fail");
}

export async function loss(promise: Promise<unknown>): Promise<LockLost> {
  const error = await failure(promise);
  assert(error instanceof LockLost, String(error));
  assert.equal(error.reason, "LOCK_LOST");
  return error;
}

export async function notAcquired(promise: Promise<unknown>, reason: string): Promise<NotAcquired> {
  const error = await failure(promise);
  assert(error instanceof NotAcquired, String(error));
  assert.equal(error.reason, reason);
  return error;
}

export async function refusal(promise: Promise<unknown>, reason: string): Promise<LeaseholdError> {
  const error = await failure(promise);
  assert(error instanceof LeaseholdError, String(error));
  assert.equal(error.reason, reason, error.message);
  return error;
}

export function got(lock: Lock | null): Lock {
  assert(lock !== null, "somebody else has the lock");
  return lock;
}
