// Checks redis-semaphore's Mutex over ioredis.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { exit } from "node:process";
import { runChecks } from "./checks.mjs";
import { Report } from "./report.mjs";
import { stage } from "./stage.mjs";

const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const { Mutex } = require("redis-semaphore");

const version = (name) =>
  JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url))).version;

function connect(address) {
  const connection = new Redis({ ...address, retryStrategy: () => 20 });
  // Its errors also fail the commands that were under way, which is where they count.
  connection.on("error", () => {});
  const mutex = (key, lockTimeout, more) =>
    new Mutex(connection, key, {
      lockTimeout,
      acquireAttemptsLimit: 1,
      acquireTimeout: 60_000,
      retryInterval: 1,
      refreshInterval: 0,
      ...more,
    });
  return {
    async take(key, ms) {
      const taken = mutex(key, ms);
      if (!(await taken.tryAcquire())) return null;
      const own = { identifier: taken.identifier, acquiredExternally: true };
      return {
        extend: (longer) => mutex(key, longer, own).tryAcquire(),
        async release() {
          // The library does not return whether the lock was still its own.
          const value = await connection.get(`mutex:${key}`);
          await taken.release();
          return value === taken.identifier;
        },
      };
    },
    pttl: (key) => connection.pttl(`mutex:${key}`),
  };
}

const report = new Report();
const name = `redis-semaphore ${version("redis-semaphore")} over ioredis ${version("ioredis")}`;
await runChecks(report, { name, connect });
exit(report.close());
