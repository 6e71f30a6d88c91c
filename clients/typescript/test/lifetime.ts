// A process that does nothing but hold a lock: `unlock NAME`, `hold NAME`, `forget NAME`, or
// `check NAME`, which checks its lock for each line of its input.

import { createInterface } from "node:readline";

import { Locks } from "../src/index.js";

const locks = new Locks({ store: "lockstore" });
const [, , what, name = ""] = process.argv;
const lock = await locks.lock(name, what === "check" ? { ttl: "2s" } : {});
if (what === "unlock") {
  await lock.unlock();
  console.log("unlocked");
} else if (what === "forget") {
  console.log("held"); // and nothing uses it any more
} else if (what === "check") {
  console.log("held");
  createInterface({ input: process.stdin })
    .on("line", () => {
      try {
        lock.check();
        console.log("still held");
      } catch (error) {
        console.log(`lost: ${String((error as Error).cause)}`);
      }
    })
    .on("close", () => void lock.unlock().catch(() => undefined));
} else {
  console.log("held");
  lock.signal.addEventListener("abort", () => {
    lock.unlock().catch((error: unknown) => {
      console.log(`lost: ${String((error as Error).cause)}`);
    });
  });
}
