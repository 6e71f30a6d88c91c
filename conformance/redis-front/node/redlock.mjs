// Checks node-redlock 4 over ioredis and node-redis 3, and node-redlock 5 over ioredis.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { promisify } from "node:util";
import { exit } from "node:process";
import { granted, LONG, refusedUntil, runChecks } from "./checks.mjs";
import { expect, Report } from "./report.mjs";
import { freshKey, stage } from "./stage.mjs";

// redlock's modules for `import` do not load without its build's own flags.
const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const redis3 = require("redis3");
const Redlock4 = require("redlock4");
const { default: Redlock5, ExecutionError } = require("redlock5");

const version = (name) => {
  const path = new URL(`./node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")).version.replace(/^v/, "");
};

// What is left of the connections' errors is told by the commands that they break.
function quiet(connection) {
  connection.on("error", () => {});
  return connection;
}

const ioredis = (address) => quiet(new Redis({ ...address, retryStrategy: () => 20 }));
const nodeRedis = (address) => quiet(redis3.createClient({ ...address, retry_strategy: () => 20 }));

// Both libraries tell a refusal and a failure by one error, whose causes say which it was.
const isRefusal4 = (error) => error.name === "LockError";
const isRefusal5 = (error) => error instanceof ExecutionError;

async function unless(isRefusal, call) {
  try {
    return await call();
  } catch (error) {
    if (isRefusal(error)) return null;
    throw error;
  }
}

function client4(connection) {
  const locks = new Redlock4([connection], { retryCount: 0 });
  const pttl = promisify(connection.pttl).bind(connection);
  return {
    async take(key, ms) {
      const lock = await unless(isRefusal4, () => locks.lock(key, ms));
      return lock && held4(lock);
    },
    pttl: (key) => pttl(key),
  };
}

function held4(lock) {
  return {
    extend: async (ms) => (await unless(isRefusal4, () => lock.extend(ms))) !== null,
    release: async () => (await unless(isRefusal4, () => lock.unlock())) !== null,
  };
}

function client5(connection) {
  const locks = quiet(new Redlock5([connection], { retryCount: 0 }));
  return {
    locks,
    async take(key, ms) {
      const lock = await unless(isRefusal5, () => locks.acquire([key], ms));
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
      const extended = await unless(isRefusal5, () => current.extend(ms));
      if (extended) current = extended;
      return extended !== null;
    },
    release: async () => (await unless(isRefusal5, () => current.release())) !== null,
  };
}

async function using() {
  const key = freshKey("using");
  const [owner, other] = [client5(ioredis(stage.direct)), client5(ioredis(stage.direct))];
  await owner.locks.using([key], 4000, { automaticExtensionThreshold: 3500 }, async (signal) => {
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
    repeats: true,
    givesUp: true,
  },
  {
    name: `${four} over node-redis ${version("redis3")}`,
    connect: (address) => client4(nodeRedis(address)),
    repeats: false,
    givesUp: true,
  },
  {
    name: `${five} over ioredis ${version("ioredis")}`,
    connect: (address) => client5(ioredis(address)),
    repeats: true,
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
