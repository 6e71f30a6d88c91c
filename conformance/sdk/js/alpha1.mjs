// Checks alpha1 with Dapr's JS SDK, against the sidecar that its usual environment
// variables name. The checks are those of ../README.md.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { GrpcClient, HttpClient, Refused } from "./clients.mjs";
import { expect, Report } from "./report.mjs";

const STORE = process.env.LOCK_STORE ?? "locks";
const STORE_DOWN = process.env.LOCK_STORE_DOWN ?? "";
const [SUCCESS, DOES_NOT_EXIST, BELONGS_TO_OTHERS] = [0, 1, 2];
const EXPIRY_LATENESS_MS = 5000; // a backend may end a lock this much later than asked

const fresh = (name) => `${name}-${randomUUID()}`;

async function expectRefusal(call, code, message) {
  let answer;
  try {
    answer = await call();
  } catch (error) {
    if (!(error instanceof Refused)) {
      throw error;
    }
    expect("code", error.code, code);
    if (!error.text.includes(message)) {
      throw new Error(`message ${JSON.stringify(error.text)} does not contain ${JSON.stringify(message)}`);
    }
    return;
  }
  throw new Error(`answered ${answer} instead of failing`);
}

async function checkLife(report, client) {
  const resource = fresh("life");
  const attempt = (owner) => client.tryLock(STORE, resource, owner, 30);

  await report.check("a free resource is granted", async () => expect("success", await attempt("a"), true));
  await report.check("a held resource is refused without an error", async () =>
    expect("success", await attempt("b"), false));
  await report.check("its own holder is refused too", async () => expect("success", await attempt("a"), false));
  await report.check("another resource is granted meanwhile", async () =>
    expect("success", await client.tryLock(STORE, fresh("other"), "b", 2), true));
  await report.check("an unlock by another owner answers 2", async () =>
    expect("status", await client.unlock(STORE, resource, "b"), BELONGS_TO_OTHERS));
  await report.check("the lock stands after that", async () => expect("success", await attempt("b"), false));
  await report.check("an unlock by the owner answers 0", async () =>
    expect("status", await client.unlock(STORE, resource, "a"), SUCCESS));
  await report.check("an unlock of a free resource answers 1", async () =>
    expect("status", await client.unlock(STORE, resource, "a"), DOES_NOT_EXIST));
  await report.check("what was unlocked is granted to another owner", async () =>
    expect("success", await attempt("b"), true));
  await client.unlock(STORE, resource, "b");
}

async function checkExpiry(report, client) {
  const resource = fresh("expiry");
  const expirySeconds = 2;

  await report.check("a lock ends at its expiry, not before", async () => {
    const start = performance.now();
    expect("success", await client.tryLock(STORE, resource, "a", expirySeconds), true);
    while (!(await client.tryLock(STORE, resource, "b", 30))) {
      if (performance.now() - start > expirySeconds * 1000 + EXPIRY_LATENESS_MS) {
        throw new Error("still held");
      }
      await sleep(50);
    }
    const heldMs = performance.now() - start;
    if (heldMs < expirySeconds * 1000) {
      throw new Error(`ended after ${heldMs} ms`);
    }
  });
  await report.check("an unlock after the expiry and a takeover answers 2", async () =>
    expect("status", await client.unlock(STORE, resource, "a"), BELONGS_TO_OTHERS));
  await client.unlock(STORE, resource, "b");
}

async function checkBadInput(report, client, codes) {
  await report.check("a name with slashes, spaces and other scripts is a name", async () => {
    const resource = fresh("a/b c%2F/ключ/鍵");
    expect("success", await client.tryLock(STORE, resource, "ich & du", 30), true);
    expect("success", await client.tryLock(STORE, resource, "b", 30), false);
    expect("status", await client.unlock(STORE, resource, "ich & du"), SUCCESS);
  });
  await report.check("a name with || in it is refused", () =>
    expectRefusal(
      () => client.tryLock(STORE, "a||b", "a", 30),
      codes.tryFailed,
      "failed to try acquiring lock: input key/keyPrefix",
    ));
  await report.check("an expiry of zero is refused", () =>
    expectRefusal(
      () => client.tryLock(STORE, fresh("zero"), "a", 0),
      codes.malformed,
      `ExpiryInSeconds is not positive in lock store ${STORE}`,
    ));
  await report.check("an empty owner is refused", () =>
    expectRefusal(
      () => client.tryLock(STORE, fresh("owner"), "", 30),
      codes.malformed,
      `LockOwner is empty in lock store ${STORE}`,
    ));
  await report.check("an empty resource is refused", () =>
    expectRefusal(
      () => client.tryLock(STORE, "", "a", 30),
      codes.malformed,
      `ResourceId is empty in lock store ${STORE}`,
    ));
  await report.check("a try on a store that does not exist is refused by its name", () =>
    expectRefusal(() => client.tryLock("nowhere", "r", "a", 30), codes.noStore, "lock store nowhere not found"));
  await report.check("an unlock on a store that does not exist is refused by its name", () =>
    expectRefusal(() => client.unlock("nowhere", "r", "a"), codes.noStore, "lock store nowhere not found"));
}

async function checkToken(report, Client) {
  const sentence = "a wrong API token is refused";
  if (!process.env.DAPR_API_TOKEN) {
    report.ignore(sentence, "the sidecar expects none: DAPR_API_TOKEN is not set");
    return;
  }
  await report.check(sentence, async () => {
    const client = new Client("wrong");
    try {
      await expectRefusal(() => client.tryLock(STORE, fresh("token"), "a", 30), "Unauthenticated", "");
    } finally {
      await client.close();
    }
  });
}

async function checkOutage(report, client, codes) {
  const [tried, unlocked] = ["a try fails while the backend is down", "an unlock fails while the backend is down"];
  if (!STORE_DOWN) {
    report.ignore(tried, "LOCK_STORE_DOWN names no store");
    report.ignore(unlocked, "LOCK_STORE_DOWN names no store");
    return;
  }
  await report.check(tried, () =>
    expectRefusal(
      () => client.tryLock(STORE_DOWN, fresh("down"), "a", 30),
      codes.tryFailed,
      "failed to try acquiring lock: ",
    ));
  await report.check(unlocked, () =>
    expectRefusal(
      () => client.unlock(STORE_DOWN, fresh("down"), "a"),
      codes.unlockFailed,
      "failed to release lock: ",
    ));
}

let code = 0;
for (const Client of [HttpClient, GrpcClient]) {
  const report = new Report(Client.subject);
  const client = new Client();
  try {
    await checkLife(report, client);
    await checkExpiry(report, client);
    await checkBadInput(report, client, Client.codes);
    await checkToken(report, Client);
    await checkOutage(report, client, Client.codes);
  } finally {
    await client.close();
  }
  code |= report.close();
}
process.exit(code);
