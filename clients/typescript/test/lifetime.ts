// A process that does nothing but hold a lock: `unlock NAME`, `hold NAME` or `forget NAME`.

import { Locks } from "../src/index.js";

const locks = new Locks({ store: "lockstore" });
const [, , what, name = ""] = process.argv;
const lock = await locks.lock(name);
if (what === "unlock") {
  await lock.unlock();
  console.log("unlocked");
} else if (what === "forget") {
  console.log("held"); // and nobody looks at it any more
} else {
  console.log("held");
  lock.signal.addEventListener("abort", () => {
    lock.unlock().catch((error: unknown) => {
      console.log(`lost: ${String((error as Error).cause)}`);
    });
  });
}
