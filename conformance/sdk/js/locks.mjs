// leasehold.v1.Locks, reached as Dapr's JS SDK reaches its own service: over a
// Connect transport to the same endpoint. And what the checks of both of
// leasehold's services share.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { expect } from "./report.mjs";

export const STORE = process.env.LOCK_STORE ?? "locks";
export const CALL_TIMEOUT_MS = 10000;
export const STREAM_TIMEOUT_MS = 60000;
// How many waits are tried; one must end with WAIT_DEADLINE.
const WAITS_MAX = 5;

export const fresh = () => `js-${randomUUID()}`;
export const seconds = (count) => ({ seconds: BigInt(count) });

// A client of the service. The SDK hides its transport, but returns its endpoint.
export function connect(dapr, service) {
  const { daprHost, daprPort, daprApiToken } = dapr.options;
  const token = (next) => (request) => {
    if (daprApiToken) {
      request.header.set("dapr-api-token", daprApiToken);
    }
    return next(request);
  };
  return createClient(
    service,
    createGrpcTransport({ baseUrl: `http://${daprHost}:${daprPort}`, interceptors: [token] }),
  );
}

// Reads google.rpc.ErrorInfo: reason is field 1, metadata the map of field 3.
export function errorInfo(error) {
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

const ending = (code, reason, cause = "") => `${Code[code]} ${reason} ${cause}`;

// The code, reason and cause with which the call is refused.
async function refusal(call) {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof ConnectError)) {
      throw error;
    }
    const { reason, metadata } = errorInfo(error);
    return ending(error.code, reason, metadata.cause);
  }
  throw new Error("it was answered instead of refused");
}

export async function expectRefusal(call, code, reason, cause = "") {
  expect("refusal", await refusal(call), ending(code, reason, cause));
}

// On a busy machine the client may end a call before the answer arrives, or its outcome is unknown.
export async function expectWaitDeadline(wait) {
  const late = ending(Code.DeadlineExceeded, "");
  const unknown = ending(Code.Unknown, "OUTCOME_UNKNOWN");
  let ended;
  for (let waits = 0; waits < WAITS_MAX; waits++) {
    ended = await refusal(wait);
    if (ended !== late && ended !== unknown) {
      break;
    }
  }
  expect("end of the wait", ended, ending(Code.DeadlineExceeded, "WAIT_DEADLINE"));
}

// The calls, with this store's name filled in.
export class Store {
  constructor(locks) {
    this.locks = locks;
  }

  lock(resourceId, fields = {}, timeoutMs = CALL_TIMEOUT_MS) {
    return this.locks.lock({ storeName: STORE, resourceId, ...fields }, { timeoutMs });
  }

  tryLock(resourceId, fields = {}) {
    return this.lock(resourceId, { immediate: true, ...fields });
  }

  renew(resourceId, lockId, fields) {
    return this.locks.renewLock({ storeName: STORE, resourceId, lockId, ...fields }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  unlock(resourceId, lockId, fields = {}) {
    return this.locks.unlock({ storeName: STORE, resourceId, lockId, ...fields }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  force(resourceId, fields = {}) {
    return this.locks.forceUnlock({ storeName: STORE, resourceId, ...fields }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  async check(locks) {
    return (await this.locks.checkLocks({ locks }, { timeoutMs: CALL_TIMEOUT_MS })).locks;
  }

  // Answers as the requests are read.
  keepAlive(requests) {
    return this.locks.lockKeepAlive(requests, { timeoutMs: STREAM_TIMEOUT_MS })[Symbol.asyncIterator]();
  }

  // Holds the resource until `release`; `rest` reads the stream to its end.
  async stream(resourceId, fields = {}) {
    const ended = new AbortController();
    const options = { signal: ended.signal, timeoutMs: STREAM_TIMEOUT_MS };
    const stream = this.locks.lockStream({ storeName: STORE, resourceId, ...fields }, options);
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
