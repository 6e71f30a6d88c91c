// A process that holds the lock named by its argument until it is killed.

import { Locks } from "../src/index.js";

const locks = new Locks({ store: "lockstore" });
const [, , name = ""] = process.argv;
await locks.lock(name, { ttl: "60s" });
console.log("held");
