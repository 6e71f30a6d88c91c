// Checks node-redlock 4 over ioredis and node-redis 3, and node-redlock 5 over ioredis.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { promisify } from "node:util";
import { exit } from "node:process";
import { runChecks } from "./checks.mjs";
import { granted, LONG, refusedUntil } from "./locks.mjs";
import { expect, Report } from "./report.mjs";
import { freshKey, stage } from "./stage.mjs";

// redlock's modules for `import` do not load without its build's own flags.
const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const redis3 = require("redis3");
const Redlock4 = require("redlock4");
const { default: Redlock5, ExecutionError, ResourceLockedError } = require("redlock5");

const version = (name) => {
  const path = new URL(`./node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")).version.replace(/^v/, "");
};

// A connection's errors also fail the commands that were under way, which is where they count.
function quiet(connection) {
  connection.on("error", () => {});
  return connection;
}

const ioredis = (address) => quiet(new Redis({ ...address, retryStrategy: () => 20 }));
const nodeRedis = (address) => quiet(redis3.createClient({ ...address, retry_strategy: () => 20 }));

// Both libraries throw one error for a refusal and for a failure. These functions return null for
// a refusal, and throw the cause of a failure.

// redlock 4 emits the causes. The caller makes one call at a time.
function unlessRefused4(locks) {
  let cause = null;
  locks.on("clientError", (error) => {
    cause = error;
  });
  return async (call) => {
    cause = null;
    try {
      return await call();
    } catch (error) {
      if (cause) throw cause;
      if (error.name === "LockError") return null;
      throw error;
    }
  };
}

// redlock 5 keeps the causes in its error.
async function unlessRefused5(call) {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof ExecutionError)) throw error;
    for (const { votesAgainst } of await Promise.all(error.attempts)) {
      for (const cause of votesAgainst.values()) {
        if (!(cause instanceof ResourceLockedError)) throw cause;
      }
    }
    return null;
  }
}

function client4(connection) {
  const locks = new Redlock4([connection], { retryCount: 0 });
  const unlessRefused = unlessRefused4(locks);
  const pttl = promisify(connection.pttl).bind(connection);
  return {
    async take(key, ms) {
      const lock = await unlessRefused(() => locks.lock(key, ms));
      return lock && held4(lock, unlessRefused);
    },
    pttl: (key) => pttl(key),
  };
}

function held4(lock, unlessRefused) {
  return {
    extend: async (ms) => (await unlessRefused(() => lock.extend(ms))) !== null,
    release: async () => (await unlessRefused(() => lock.unlock())) !== null,
  };
}

function client5(connection) {
  const locks = quiet(new Redlock5([connection], { retryCount: 0 }));
  return {
    locks,
    async take(key, ms) {
      const lock = await unlessRefused5(() => locks.acquire([key], ms));
      return lock && held5(lock);
    },
    pttl: (key) => connection.pttl(key),
  };
}

function held5(lock) {
  // An extension makes a new lock object, which the release needs.
  let current = lock;
  return {
    async extend(ms) {
      const extended = await unlessRefused5(() => current.extend(ms));
      if (extended) current = extended;
      return extended !== null;
    },
    release: async () => (await unlessRefused5(() => current.release())) !== null,
  };
}

async function using() {
  const key = freshKey("using");
  const [owner, other] = [client5(ioredis(stage.direct)), client5(ioredis(stage.direct))];
  await owner.locks.using([key], 4000, { automaticExtensionThreshold: 3500 }, async (signal) => {
    // Longer than the TTL, so that only an extension keeps the lock.
    await refusedUntil(other, key, performance.now() + 5500);
    expect("the signal's aborted", signal.aborted, false);
  });
  await (await granted(other, key)).release();
}

async function severalResources() {
  const keys = [freshKey("several"), freshKey("several")];
  const client = client5(ioredis(stage.direct));
  await client.locks.acquire(keys, LONG).then(
    () => {
      throw new Error("it was granted");
    },
    () => {},
  );
  for (const key of keys) await granted(client, key);
}

const report = new Report();
const four = `node-redlock ${version("redlock4")}`;
const five = `node-redlock ${version("redlock5")}`;
const own = `${five} on ${stage.backend}`;
const libraries = [
  {
    name: `${four} over ioredis ${version("ioredis")}`,
    connect: (address) => client4(ioredis(address)),
    givesUp: true,
  },
  {
    name: `${four} over node-redis ${version("redis3")}`,
    connect: (address) => client4(nodeRedis(address)),
    givesUp: true,
  },
  {
    name: `${five} over ioredis ${version("ioredis")}`,
    connect: (address) => client5(ioredis(address)),
  },
];

const several = "a lock on two resources is refused, and takes neither";
await Promise.all([
  ...libraries.map((library) => runChecks(report, library)),
  report.check(own, "using extends the lock until its routine ends", using),
  stage.isFront
    ? report.check(own, several, severalResources)
    : report.ignore(own, several, "Redis itself serves it"),
]);
exit(report.close());
