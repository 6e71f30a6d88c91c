// The request for a lock, until it is granted or refused.

import type { Connection } from "./connection.js";
import { now } from "./clock.js";
import { describe, fromMessage, SECOND, toMilliseconds } from "./duration.js";
import { LeaseholdError } from "./errors.js";
import { Grant } from "./grant.js";
import type { Plan } from "./options.js";
import { onAbort } from "./signals.js";
import { asError } from "./status.js";

/** The sidecar sends a ping every 10 s; a wait ends after this long without one. */
const SILENCE = 30n * SECOND;
/** How long after the end of the wait the answer may come. */
const GRACE = 10n * SECOND;

const SILENT = Symbol("silent");

/** Takes a lock. Throws the reason of the caller's signal if that ends the wait. */
export async function acquire(connection: Connection, plan: Plan): Promise<Grant> {
  const { signal } = plan;
  const { rpc } = connection;
  const closer = connection.closer();
  const giveUp = () => {
    connection.replace(rpc);
  };
  const sentAt = now();
  const end = plan.wait === undefined ? undefined : sentAt + plan.wait + GRACE;
  const messages = rpc.calls.lockStream(plan.message, { ...rpc.options, signal: closer.signal });
  const rest = messages[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await answerWithin(rest.next(), patience(end), signal);
      if (next === SILENT) {
        giveUp();
        throw new LeaseholdError("UNAVAILABLE", "the sidecar does not answer");
      }
      if (next.done === true) {
        throw new LeaseholdError("UNAVAILABLE", "the stream ended before the lock was granted");
      }
      const { case: kind, value } = next.value.lockServerStream;
      if (kind === "lockAcquired") {
        const grant = new Grant({ rpc, plan, acquired: value, sentAt, rest, closer, onSilence: giveUp });
        if (grant.isTooLate) {
          throw new LeaseholdError("UNAVAILABLE", "the lock was granted, but its time has passed");
        }
        if (!grant.leavesTime) {
          await grant.release();
          const ttl = describe(fromMessage(value.ttl));
          throw new LeaseholdError(
            "INVALID_REQUEST",
            `stopBefore is not shorter than the granted TTL of ${ttl}`,
          );
        }
        signal?.throwIfAborted();
        grant.start();
        return grant;
      }
    }
  } catch (error) {
    closer.abort();
    signal?.throwIfAborted();
    connection.throwIfClosed();
    throw asError(error, plan, (problem) => connection.unreachable(problem));
  }
}

/** How long to wait for the next message. */
function patience(end: bigint | undefined): bigint {
  const left = end === undefined ? SILENCE : end - now();
  return left < SILENCE ? left : SILENCE;
}

/**
 * The result of a promise, or SILENT after a time. Rejects when the caller cancels. If the promise
 * settles later, that has no effect.
 */
async function answerWithin<T>(
  answer: Promise<T>,
  limit: bigint,
  signal: AbortSignal | undefined,
): Promise<T | typeof SILENT> {
  let cleanUp = (): void => undefined;
  try {
    return await new Promise<T | typeof SILENT>((resolve, reject) => {
      answer.then(resolve, reject);
      const cancel = () => {
        reject(new LeaseholdError("CANCELLED", "the caller has cancelled the wait"));
      };
      // Not unref'ed: a process that waits for a lock stays alive.
      const timer = setTimeout(resolve, Math.max(toMilliseconds(limit), 0), SILENT);
      const forget = signal === undefined ? undefined : onAbort(signal, cancel);
      cleanUp = () => {
        clearTimeout(timer);
        forget?.();
      };
    });
  } finally {
    cleanUp();
  }
}
