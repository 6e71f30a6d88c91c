// A worker that charges orders under a lock, and stops when it loses the lock.
//
// Needs a sidecar with the store `lockstore`. Then end the lock of a worker:
//   curl -X DELETE -d '{"force":true}' http://127.0.0.1:3500/v1.0-alpha2/lock/lockstore/invoice-run

import { setTimeout as sleep } from "node:timers/promises";

import { Locks, LockLost } from "@leasehold/client";

using locks = new Locks({ store: "lockstore" });

/** Stands for a call that takes a while, of a service that refuses a smaller token. */
async function charge(order: number, fence: bigint, signal: AbortSignal): Promise<void> {
  await sleep(100, undefined, { signal });
  console.log(`charged order ${order} with token ${fence}`);
}

try {
  await locks.with("invoice-run", { wait: "10s", label: "worker" }, async (lock) => {
    for (let order = 1; order <= 1000; order += 1) {
      await charge(order, lock.token, lock.signal);
    }
  });
  console.log("all orders are charged");
} catch (error) {
  if (!(error instanceof LockLost)) {
    throw error;
  }
  console.log(`stopped in the middle: ${error.cause}`);
}
