// One of several candidates leads: the one that has the lock. `node leader.js NAME`; end it with SIGTERM.

import { setTimeout as sleep } from "node:timers/promises";

import { LeaseholdError, Locks, lossOf } from "@leasehold/client";

const [, , name = "nobody"] = process.argv;
const locks = new Locks({ store: "lockstore" });
const stop = new AbortController();
const isStopping = () => stop.signal.aborted;
process.once("SIGTERM", () => {
  stop.abort();
});

async function lead(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    console.log(`${name} leads`);
    await sleep(200, undefined, { signal });
  }
}

while (!isStopping()) {
  try {
    // Waits without a limit, so that the candidates take over in turn.
    await locks.with("leader", { ttl: "10s", label: name, signal: stop.signal }, (lock) => lead(lock.signal));
  } catch (error) {
    if (isStopping()) {
      break;
    }
    if (!(error instanceof LeaseholdError)) {
      throw error;
    }
    console.log(`${name} does not lead: ${lossOf(error)?.cause ?? error.reason}`);
    await sleep(1000); // the sidecar may be restarting
  }
}
console.log(`${name} has ended`);
locks.close();
