// How the checks take locks.
//
// A client has `take(key, ms)`, which tries once and returns a held lock or null, and `pttl(key)`.
// A held lock has `extend(ms)` and `release()`, which return whether it was still the caller's.

import { setTimeout as sleep } from "node:timers/promises";
import { eventually, expect } from "./report.mjs";

// Far longer than a check takes, so that a lock does not end by its TTL.
export const LONG = 60_000;
// Short enough to wait for; etcd grants no less than 2 s.
export const SHORT = 1000;

export async function granted(client, key, ms = LONG) {
  const held = await client.take(key, ms);
  if (!held) throw new Error(`${key} was not granted`);
  return held;
}

// The lock, and when it may end at the earliest. A library refuses a grant that arrives after its
// TTL, which a busy machine makes happen.
export function grantedForShort(client, key) {
  return eventually(`${key} is granted`, async () => {
    const earliest = performance.now() + SHORT;
    const held = await client.take(key, SHORT);
    return held && { held, earliest };
  });
}

export const takenWhenFree = (client, key) =>
  eventually(`${key} becomes free`, () => client.take(key, LONG));

// Tries repeatedly until the deadline, and fails if the lock is granted.
export async function refusedUntil(client, key, deadline) {
  while (performance.now() < deadline) {
    expect("another's try", await client.take(key, LONG), null);
    await sleep(20);
  }
}
