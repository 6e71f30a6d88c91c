// Reaches alpha2, leasehold.v1.Locks, as Dapr's JS SDK reaches its own
// service: over a Connect transport to the same endpoint. The checks are those
// of ../README.md.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { CommunicationProtocolEnum, DaprClient } from "@dapr/dapr";

import { Locks } from "./node_modules/.stubs/leasehold/v1/locks_pb.js";
import { expect, Report } from "./report.mjs";

const STORE = process.env.LOCK_STORE ?? "locks";
const CALL_TIMEOUT_MS = 10000;

const fresh = () => `js-${randomUUID()}`;
const seconds = (count) => ({ seconds: BigInt(count) });

// The SDK hides its transport, but tells its endpoint.
function connect(dapr) {
  const { daprHost, daprPort, daprApiToken } = dapr.options;
  const token = (next) => (request) => {
    if (daprApiToken) {
      request.header.set("dapr-api-token", daprApiToken);
    }
    return next(request);
  };
  return createClient(
    Locks,
    createGrpcTransport({ baseUrl: `http://${daprHost}:${daprPort}`, interceptors: [token] }),
  );
}

// Reads google.rpc.ErrorInfo: reason is field 1, metadata the map of field 3.
function errorInfo(error) {
  const detail = error.details.find(({ type }) => type === "google.rpc.ErrorInfo");
  const info = { reason: "", metadata: {} };
  if (!detail) {
    return info;
  }
  const reader = new BinaryReader(detail.value);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === 1) {
      info.reason = reader.string();
    } else if (field === 3) {
      const entry = new BinaryReader(reader.bytes());
      const pair = ["", ""];
      while (entry.pos < entry.len) {
        const [part] = entry.tag();
        pair[part - 1] = entry.string();
      }
      info.metadata[pair[0]] = pair[1];
    } else {
      reader.skip(wireType);
    }
  }
  return info;
}

async function expectRefusal(call, code, reason, cause = "") {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof ConnectError)) {
      throw error;
    }
    const info = errorInfo(error);
    expect("code", Code[error.code], Code[code]);
    expect("reason", info.reason, reason);
    expect("cause", info.metadata.cause ?? "", cause);
    return;
  }
  throw new Error("it was answered instead of refused");
}

// The calls, with this store's name filled in.
class Store {
  constructor(locks) {
    this.locks = locks;
  }

  lock(resourceId, fields = {}, timeoutMs = CALL_TIMEOUT_MS) {
    return this.locks.lock({ storeName: STORE, resourceId, ...fields }, { timeoutMs });
  }

  tryLock(resourceId, fields = {}) {
    return this.lock(resourceId, { immediate: true, ...fields });
  }

  renew(resourceId, lockId, ttlSeconds) {
    const request = { storeName: STORE, resourceId, lockId, ttl: seconds(ttlSeconds) };
    return this.locks.renewLock(request, { timeoutMs: CALL_TIMEOUT_MS });
  }

  unlock(resourceId, lockId) {
    return this.locks.unlock({ storeName: STORE, resourceId, lockId }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  force(resourceId) {
    return this.locks.forceUnlock({ storeName: STORE, resourceId }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  // Holds the resource until `release`; `rest` reads the stream to its end.
  async stream(resourceId) {
    const ended = new AbortController();
    const stream = this.locks.lockStream({ storeName: STORE, resourceId }, { signal: ended.signal });
    const messages = stream[Symbol.asyncIterator]();
    const rest = async () => {
      for (let next = await messages.next(); !next.done; next = await messages.next()) {
        expect("message", next.value.lockServerStream.case, "ping");
      }
    };
    for (let next = await messages.next(); !next.done; next = await messages.next()) {
      const { case: kind, value } = next.value.lockServerStream;
      if (kind === "lockAcquired") {
        return { grant: value, rest, release: () => ended.abort() };
      }
    }
    throw new Error("the stream ended without a grant");
  }

  async eventuallyLocks(resource, limitMs) {
    const deadline = performance.now() + limitMs;
    for (;;) {
      try {
        return await this.tryLock(resource);
      } catch (error) {
        if (performance.now() > deadline) {
          throw error;
        }
        await sleep(50);
      }
    }
  }
}

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
  await expectRefusal(() => store.lock(resource, {}, 500), Code.DeadlineExceeded, "WAIT_DEADLINE");
  const [second] = await Promise.all([
    store.lock(resource),
    sleep(300).then(() => store.unlock(resource, first.lockId)),
  ]);
  const waitedMs = Number(second.waited.seconds) * 1000 + second.waited.nanos / 1e6;
  if (waitedMs < 200 || second.fencingToken <= first.fencingToken) {
    throw new Error(`granted after ${waitedMs} ms with token ${second.fencingToken}`);
  }
  await store.unlock(resource, second.lockId);
}

async function renewal(store) {
  const resource = fresh();
  const grant = await store.tryLock(resource, { ttl: seconds(2) });
  await sleep((Number(grant.ttl.seconds) + 2) * 1000);
  await expectRefusal(() => store.tryLock(resource), Code.Aborted, "RESOURCE_LOCKED");
  await store.unlock(resource, grant.lockId);
}

async function ownRenewal(store) {
  const resource = fresh();
  const grant = await store.tryLock(resource, { ttl: seconds(2), noRenewal: true });
  const renewed = await store.renew(resource, grant.lockId, 20);
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
  "a waiting call is granted when the holder unlocks, or told of its deadline": waiting,
  "the sidecar renews a lock past its TTL": renewal,
  "an app renews its own lock, and one that does not loses it": ownRenewal,
  "the end of a stream releases its lock": streamIsTheLock,
  "an unlock ends the stream without an error": unlockEndsTheStream,
  "a forced unlock is told on the stream and to the holder's later call": force,
  "a store that does not exist is refused": noSuchStore,
};

const report = new Report("js alpha2");
const dapr = new DaprClient({ communicationProtocol: CommunicationProtocolEnum.GRPC, logger: { level: "error" } });
const store = new Store(connect(dapr));
for (const [sentence, body] of Object.entries(checks)) {
  await report.check(sentence, () => body(store));
}
await dapr.stop();
process.exit(report.close());
