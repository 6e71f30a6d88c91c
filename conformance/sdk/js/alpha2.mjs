// Reaches alpha2, leasehold.v1.Locks, beside Dapr's JS SDK. The checks are those
// of ../README.md.

import { setTimeout as sleep } from "node:timers/promises";

import { Code } from "@connectrpc/connect";
import { CommunicationProtocolEnum, DaprClient } from "@dapr/dapr";

import { connect, expectRefusal, expectWaitDeadline, fresh, seconds, Store } from "./locks.mjs";
import { Locks } from "./node_modules/.stubs/leasehold/v1/locks_pb.js";
import { Report } from "./report.mjs";
import { terms } from "./terms.mjs";

async function lockAndUnlock(store) {
  const resource = fresh();
  const grant = await store.tryLock(resource, { ttl: seconds(20) });
  if (!grant.lockId || grant.fencingToken <= 0n || grant.ttl.seconds < 20n) {
    throw new Error(`granted ${grant.fencingToken}, ${grant.ttl?.seconds}`);
  }
  await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
  await store.unlock(resource, grant.lockId);
  await expectRefusal(() => store.unlock(resource, grant.lockId), Code.NotFound, "LOCK_NOT_FOUND");
  const again = await store.tryLock(resource);
  if (again.fencingToken <= grant.fencingToken) {
    throw new Error(`token ${again.fencingToken} after ${grant.fencingToken}`);
  }
  await store.unlock(resource, again.lockId);
}

async function waiting(store) {
  const resource = fresh();
  const first = await store.tryLock(resource);
  await expectWaitDeadline(() => store.lock(resource, {}, 1000));
  // Long enough for the next call to be in the queue by then.
  const [second] = await Promise.all([
    store.lock(resource),
    sleep(3000).then(() => store.unlock(resource, first.lockId)),
  ]);
  const waitedMs = Number(second.waited.seconds) * 1000 + second.waited.nanos / 1e6;
  if (waitedMs < 200 || second.fencingToken <= first.fencingToken) {
    throw new Error(`granted after ${waitedMs} ms with token ${second.fencingToken}`);
  }
  await store.unlock(resource, second.lockId);
}

async function renewal(store) {
  const resource = fresh();
  const grant = await store.tryLock(resource, { ttl: seconds(6) });
  await sleep((Number(grant.ttl.seconds) + 2) * 1000);
  await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
  await store.unlock(resource, grant.lockId);
}

async function ownRenewal(store) {
  const resource = fresh();
  const grant = await store.tryLock(resource, { ttl: seconds(6), noRenewal: true });
  const renewed = await store.renew(resource, grant.lockId, { ttl: seconds(20) });
  if (renewed.ttl.seconds < 20n) {
    throw new Error(`renewed for ${renewed.ttl.seconds} s`);
  }
  await sleep((Number(grant.ttl.seconds) + 2) * 1000);
  await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
  await store.unlock(resource, grant.lockId);
  await store.tryLock(resource, { ttl: seconds(2), noRenewal: true });
  const next = await store.eventuallyLocks(resource, 10000);
  await store.unlock(resource, next.lockId);
}

async function streamIsTheLock(store) {
  const resource = fresh();
  const { grant, release } = await store.stream(resource);
  if (grant.fencingToken <= 0n) {
    throw new Error(`token ${grant.fencingToken}`);
  }
  await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
  release();
  const next = await store.eventuallyLocks(resource, 5000);
  await store.unlock(resource, next.lockId);
}

async function unlockEndsTheStream(store) {
  const resource = fresh();
  const { grant, rest } = await store.stream(resource);
  await store.unlock(resource, grant.lockId);
  await rest();
}

async function force(store) {
  const resource = fresh();
  const { rest } = await store.stream(resource);
  await store.force(resource);
  await expectRefusal(rest, Code.Aborted, "LOCK_LOST", "forced");
  const grant = await store.tryLock(resource);
  await store.force(resource);
  await expectRefusal(() => store.unlock(resource, grant.lockId), Code.Aborted, "LOCK_LOST", "forced");
  await expectRefusal(() => store.force(resource), Code.NotFound, "LOCK_NOT_FOUND");
}

async function noSuchStore(store) {
  await expectRefusal(() => store.lock("r", { storeName: "nowhere" }), Code.NotFound, "STORE_NOT_FOUND");
}

const checks = {
  "a lock is granted with a rising token, refused to others, and unlocked once": lockAndUnlock,
  "a waiting call is granted when the holder unlocks, or ends at its deadline": waiting,
  "the sidecar renews a lock past its TTL": renewal,
  "an app renews its own lock, and one that does not loses it": ownRenewal,
  "the end of a stream releases its lock": streamIsTheLock,
  "an unlock ends the stream without an error": unlockEndsTheStream,
  "a forced unlock ends the stream and fails the holder's later call": force,
  "a store that does not exist is refused": noSuchStore,
};

const report = new Report("js alpha2");
const dapr = new DaprClient({ communicationProtocol: CommunicationProtocolEnum.GRPC, logger: { level: "error" } });
const store = new Store(connect(dapr, Locks));
for (const [sentence, body] of Object.entries({ ...checks, ...terms })) {
  await report.check(sentence, () => body(store));
}
await dapr.stop();
process.exit(report.close());
