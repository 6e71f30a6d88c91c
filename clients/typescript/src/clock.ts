// The clock by which locks end.

import { uptime } from "node:os";
import { platform } from "node:process";

import { MILLISECOND, SECOND, toMilliseconds } from "./duration.js";

const LONGEST_TIMER_MS = 0x7fff_ffff;
// How much of the time since the machine's start is lost by rounding, at most.
const ROUNDING = 100n * MILLISECOND;

/**
 * A monotonic clock in nanoseconds. `process.hrtime` does not count the time in which a Linux
 * machine was suspended, but the time since the machine's start does: what that has gained on the
 * other since this clock was made is added.
 */
export function suspensionAware(monotonic: () => bigint, sinceStart: () => bigint): () => bigint {
  let slept = 0n;
  let offset: bigint | undefined;
  const gained = (reading: bigint): bigint => {
    try {
      offset ??= sinceStart() - reading;
      return sinceStart() - reading - offset;
    } catch {
      return 0n; // A sandbox may forbid it. Then only the other clock counts.
    }
  };
  gained(monotonic());
  return () => {
    const reading = monotonic();
    const now = gained(reading);
    if (now > slept + ROUNDING) {
      slept = now;
    }
    return reading + slept;
  };
}

function sinceStart(): bigint {
  return BigInt(Math.round(uptime() * Number(SECOND)));
}

const monotonic = (): bigint => process.hrtime.bigint();

/** The time now, in nanoseconds since an arbitrary moment. */
export const now = platform === "linux" ? suspensionAware(monotonic, sinceStart) : monotonic;

/** Calls back once the clock has reached a time. Does not keep the process alive. */
export class Alarm {
  #timer: NodeJS.Timeout | undefined;

  /** Sets the alarm, in place of an earlier one. */
  set(time: bigint, ring: () => void): void {
    clearTimeout(this.#timer);
    const delay = Math.min(Math.max(Math.ceil(toMilliseconds(time - now())), 0), LONGEST_TIMER_MS);
    this.#timer = setTimeout(() => {
      // Timers may be early, and far times take more than one.
      if (now() >= time) {
        ring();
      } else {
        this.set(time, ring);
      }
    }, delay).unref();
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}
