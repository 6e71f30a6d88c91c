// Durations: as callers write them, in nanoseconds inside, and as protobuf's messages.

import type { Duration as Message } from "@bufbuild/protobuf/wkt";

import { LeaseholdError } from "./errors.js";

/**
 * A length of time: a number of milliseconds, or a string of numbers with the units `h`, `m`, `s`
 * and `ms`, as Go writes them: `"10s"`, `"1h30m"`, `"1.5s"`, `"250ms"`.
 */
export type Duration = number | string;

export const MILLISECOND = 1_000_000n;
export const SECOND = 1_000n * MILLISECOND;

const UNITS = { h: 3600n * SECOND, m: 60n * SECOND, s: SECOND, ms: MILLISECOND };
/** What protobuf's Duration can hold: some 10,000 years. */
const LONGEST = 315_576_000_000n * SECOND;
const WHOLE = /^(?:\d+(?:\.\d+)?(?:h|ms|m|s))+$/;
const PARTS = /(\d+(?:\.\d+)?)(h|ms|m|s)/g;

/** Reads the duration that the option `name` has; an error names the option. */
export function nanoseconds(name: string, value: Duration, allowed: "positive" | "zero"): bigint {
  const read = typeof value === "number" ? fromNumber(value) : fromString(value);
  if (read === undefined) {
    throw new LeaseholdError(
      "INVALID_REQUEST",
      `${name}: ${String(value)} is neither milliseconds nor a duration such as "10s"`,
    );
  }
  if (read < 0n || (read === 0n && allowed === "positive")) {
    const demand = allowed === "positive" ? "must be more than 0" : "must not be negative";
    throw new LeaseholdError("INVALID_REQUEST", `${name}: ${demand}`);
  }
  if (read > LONGEST) {
    throw new LeaseholdError("INVALID_REQUEST", `${name}: must be at most 10000 years`);
  }
  return read;
}

function fromNumber(value: number): bigint | undefined {
  const rounded = Math.round(value * Number(MILLISECOND));
  return Number.isFinite(rounded) ? BigInt(rounded) : undefined;
}

function fromString(value: unknown): bigint | undefined {
  if (typeof value !== "string" || !WHOLE.test(value)) {
    return undefined;
  }
  let sum = 0n;
  for (const [, count, unit] of value.matchAll(PARTS)) {
    const length = UNITS[unit as keyof typeof UNITS];
    const [whole = "", fraction = ""] = (count ?? "").split(".");
    sum += BigInt(whole) * length;
    sum += (BigInt(fraction || 0) * length) / 10n ** BigInt(fraction.length);
  }
  return sum;
}

export function toMessage(value: bigint): { seconds: bigint; nanos: number } {
  return { seconds: value / SECOND, nanos: Number(value % SECOND) };
}

/** An absent message is 0. */
export function fromMessage(message: Message | undefined): bigint {
  return message === undefined ? 0n : message.seconds * SECOND + BigInt(message.nanos);
}

/** For messages: `10 s`, `250 ms`. */
export function describe(value: bigint): string {
  const milliseconds = toMilliseconds(value);
  return milliseconds < 1_000 ? `${milliseconds} ms` : `${milliseconds / 1_000} s`;
}

export function toMilliseconds(value: bigint): number {
  return Number(value) / Number(MILLISECOND);
}
