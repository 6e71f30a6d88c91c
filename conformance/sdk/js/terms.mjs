// The checks of alpha2 about the terms of a grant: who shares it, what names it,
// how long a call waits for it, how long it is valid, and what ends it.

import { setTimeout as sleep } from "node:timers/promises";

import { Code } from "@connectrpc/connect";

import { errorInfo, expectRefusal, expectWaitDeadline, fresh, seconds, STORE } from "./locks.mjs";
import { LockMode } from "./node_modules/.stubs/leasehold/v1/locks_pb.js";
import { expect } from "./report.mjs";

async function sharing(store) {
  const resource = fresh();
  const shared = { mode: LockMode.SHARED };
  for (const reader of [await store.tryLock(resource, shared), await store.tryLock(resource, shared)]) {
    await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
    await store.unlock(resource, reader.lockId);
  }
  const writer = await store.tryLock(resource);
  await expectRefusal(() => store.tryLock(resource, shared), Code.Aborted, "RESOURCE_LOCKED");
  await store.unlock(resource, writer.lockId);
}

async function namespaces(store) {
  const resource = fresh();
  const namespace = ["shop", "eu"];
  const plain = await store.tryLock(resource);
  const named = await store.tryLock(resource, { namespace });
  await expectRefusal(() => store.tryLock(resource, { namespace }), Code.Aborted, "RESOURCE_LOCKED");
  await store.unlock(resource, named.lockId, { namespace });
  await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
  await store.unlock(resource, plain.lockId);
}

async function label(store) {
  const resource = fresh();
  const grant = await store.tryLock(resource, { label: "nightly-import" });
  const refused = await store.tryLock(resource).catch((error) => error);
  await store.unlock(resource, grant.lockId);
  expect("reason", errorInfo(refused).reason, "RESOURCE_LOCKED");
  expect("last part of the holder", errorInfo(refused).metadata.holder.split("/").at(-1), "nightly-import");
}

// A held resource. Each try needs its own: after one that ended late, it is free.
// A call without its own wait would get it in time.
async function heldForAWhile(store) {
  const resource = fresh();
  await store.tryLock(resource, { maxHold: seconds(9) });
  return resource;
}

async function wait(store) {
  const lock = async (wait) => store.lock(await heldForAWhile(store), { wait: seconds(wait) });
  await expectWaitDeadline(() => lock(1));
  await expectRefusal(() => lock(0), Code.Aborted, "RESOURCE_LOCKED");
}

async function waitOfAStream(store) {
  await expectWaitDeadline(async () => store.stream(await heldForAWhile(store), { wait: seconds(2) }));
  const resource = fresh();
  const { grant, rest } = await store.stream(resource, { wait: seconds(1) });
  await sleep(2000);
  await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
  await store.unlock(resource, grant.lockId);
  await rest();
}

async function validity(store) {
  const [held, lost] = [fresh(), fresh()];
  const grant = await store.tryLock(held, { ttl: seconds(20) });
  const gone = await store.tryLock(lost);
  await store.force(lost);
  const checks = await store.check([
    { storeName: STORE, resourceId: held, lockId: grant.lockId },
    { storeName: STORE, resourceId: lost, lockId: gone.lockId },
    { storeName: STORE, resourceId: held, lockId: "made-up" },
    { storeName: "nowhere", resourceId: held, lockId: grant.lockId },
  ]);
  const found = checks.map(({ validFor, reason, cause }) => `${validFor !== undefined} ${reason} ${cause}`);
  const want = ["true  ", "false LOCK_LOST forced", "false NOT_HELD_HERE ", "false STORE_NOT_FOUND "];
  expect("the answer to each", found.join(), want.join());
  const validSeconds = Number(checks[0].validFor.seconds) + checks[0].validFor.nanos / 1e9;
  if (validSeconds <= 0 || validSeconds >= 20) {
    throw new Error(`valid for ${validSeconds} s`);
  }
  await store.unlock(held, grant.lockId);
}

async function keepAlive(store) {
  const resources = [fresh(), fresh()];
  const grants = [];
  for (const resource of resources) {
    grants.push(await store.tryLock(resource, { noRenewal: true, ttl: seconds(10) }));
  }
  const request = (id, resourceId, lockId) => ({ id: BigInt(id), storeName: STORE, resourceId, lockId, ttl: seconds(20) });
  let sendTheRest;
  const firstWasAnswered = new Promise((resolve) => (sendTheRest = resolve));
  async function* requests() {
    yield request(7, resources[0], "made-up");
    await firstWasAnswered;
    yield request(0, resources[0], grants[0].lockId);
    yield request(1, resources[1], grants[1].lockId);
  }
  const answers = store.keepAlive(requests());
  const { value: failed } = await answers.next();
  expect("failure", `${failed.id} ${failed.reason} ${failed.held}`, "7 LOCK_NOT_FOUND true");
  sendTheRest();
  const renewed = [(await answers.next()).value, (await answers.next()).value];
  const terms = renewed.map(({ id, ttl }) => `${id} ${ttl?.seconds >= 20n}`);
  expect("renewed", terms.sort().join(), "0 true,1 true");
  expect("the stream has ended", (await answers.next()).done, true);
  await store.unlock(resources[0], grants[0].lockId);
  await store.unlock(resources[1], grants[1].lockId);
}

async function detaching(store) {
  const resource = fresh();
  const { grant, rest } = await store.stream(resource);
  await store.renew(resource, grant.lockId, { detach: true, ttl: seconds(4) });
  await rest();
  await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
  const next = await store.eventuallyLocks(resource, 15000);
  await store.unlock(resource, next.lockId);
}

async function laterLimit(store) {
  const resource = fresh();
  const grant = await store.tryLock(resource, { ttl: seconds(60) });
  await store.renew(resource, grant.lockId, { ttl: seconds(60), maxHold: seconds(1) });
  const next = await store.eventuallyLocks(resource, 15000);
  await store.unlock(resource, next.lockId);
  await expectRefusal(() => store.unlock(resource, grant.lockId), Code.Aborted, "LOCK_LOST", "max_hold");
}

async function forceOne(store) {
  const resource = fresh();
  const first = await store.tryLock(resource, { mode: LockMode.SHARED });
  const second = await store.tryLock(resource, { mode: LockMode.SHARED });
  const force = () => store.force(resource, { grantId: first.grantId, reason: "a check of the SDKs" });
  await force();
  await expectRefusal(() => store.unlock(resource, first.lockId), Code.Aborted, "LOCK_LOST", "forced");
  await expectRefusal(force, Code.NotFound, "LOCK_NOT_FOUND");
  await store.unlock(resource, second.lockId);
}

export const terms = {
  "readers share a lock, and a writer is refused until the last has unlocked": sharing,
  "a resource in a namespace is another than the same name without it": namespaces,
  "a refusal names the holder with its label": label,
  "a wait ends a call that waits, and a wait of zero is a try": wait,
  "a wait ends the waiting of a stream, and not its lock": waitOfAStream,
  "a check says for how long a lock is valid, or why it is not": validity,
  "one stream renews many locks, and one that fails does not end it": keepAlive,
  "a detached lock outlives its stream until its TTL": detaching,
  "a limit that is set later ends a lock that the sidecar renews": laterLimit,
  "a forced unlock with a grant ID ends that grant and no other": forceOne,
};
