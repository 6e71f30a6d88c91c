// Reaches leasehold.v1.Inspection beside Dapr's JS SDK. The checks are those of
// ../README.md.

import { setTimeout as sleep } from "node:timers/promises";

import { Code } from "@connectrpc/connect";
import { CommunicationProtocolEnum, DaprClient } from "@dapr/dapr";

import {
  CALL_TIMEOUT_MS, connect, errorInfo, expectRefusal, fresh, seconds, STORE, Store, STREAM_TIMEOUT_MS,
} from "./locks.mjs";
import { EndCause, Inspection } from "./node_modules/.stubs/leasehold/v1/inspection_pb.js";
import { LockMode, Locks } from "./node_modules/.stubs/leasehold/v1/locks_pb.js";
import { expect, Report } from "./report.mjs";

// The calls, with this store's name filled in.
class Inspector {
  constructor(stub) {
    this.stub = stub;
  }

  get(fields) {
    return this.stub.getLock({ storeName: STORE, ...fields }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  list(fields) {
    return this.stub.listLocks({ storeName: STORE, ...fields }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  waiters(fields) {
    return this.stub.listWaiters({ storeName: STORE, ...fields }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  end(fields) {
    return this.stub.endLocks({ storeName: STORE, ...fields }, { timeoutMs: CALL_TIMEOUT_MS });
  }

  // Passes the events to `body`, and ends the watch with it.
  async watch(fields, body) {
    const ended = new AbortController();
    const options = { signal: ended.signal, timeoutMs: STREAM_TIMEOUT_MS };
    const events = this.stub.watchLocks({ storeName: STORE, ...fields }, options)[Symbol.asyncIterator]();
    const next = async () => {
      const { value, done } = await events.next();
      expect("the watch has ended", done, false);
      return value;
    };
    try {
      return await body(next);
    } finally {
      ended.abort();
    }
  }

  async hasWatch() {
    try {
      await this.watch({ resourceId: fresh() }, (next) => next());
      return true;
    } catch (error) {
      return errorInfo(error).reason !== "UNSUPPORTED";
    }
  }
}

// Asks for page after page, each of `pageSize` at most.
async function pages(call, pageSize, fields) {
  const answers = [];
  let pageToken = "";
  do {
    answers.push(await call({ pageSize, pageToken, ...fields }));
    pageToken = answers.at(-1).nextPageToken;
  } while (pageToken);
  return answers;
}

const ids = (grants) => grants.map(({ grantId }) => grantId).sort().join();
const names = (states) => states.map(({ resourceId }) => resourceId).sort().join();
const label = ({ holder }) => holder.split("/").at(-1);
const longest = (counts) => Math.max(...counts);

async function oneLock(inspector, store) {
  const resourceId = fresh();
  const grant = await store.tryLock(resourceId, { ttl: seconds(20), label: "desk" });
  const { lock } = await inspector.get({ resourceId });
  expect("resource and total", `${lock.resourceId} ${lock.grantsTotal}`, `${resourceId} 1`);
  const [held] = lock.grants;
  const shown = [held.grantId, label(held), LockMode[held.mode], held.foreign, held.since !== undefined];
  expect("grant", shown.join(), [grant.grantId, "desk", "EXCLUSIVE", false, true].join());
  const remainingSeconds = Number(held.remaining.seconds) + held.remaining.nanos / 1e9;
  if (remainingSeconds <= 0 || remainingSeconds >= 60) {
    throw new Error(`${remainingSeconds} s remain`);
  }
  await store.unlock(resourceId, grant.lockId);
  expect("grants of a free one", ids((await inspector.get({ resourceId })).lock.grants), "");
}

async function readers(inspector, store) {
  const resourceId = fresh();
  const grants = [];
  for (let reader = 0; reader < 3; reader++) {
    grants.push(await store.tryLock(resourceId, { mode: LockMode.SHARED }));
  }
  const shown = (await pages((fields) => inspector.get(fields), 2, { resourceId })).map(({ lock }) => lock);
  expect("longest page", longest(shown.map((lock) => lock.grants.length)), 2);
  expect("grants", ids(shown.flatMap((lock) => lock.grants)), ids(grants));
  expect("totals", shown.map(({ grantsTotal }) => grantsTotal).join(), shown.map(() => 3).join());
  for (const { lockId } of grants) {
    await store.unlock(resourceId, lockId);
  }
}

async function queue(inspector, store) {
  const resourceId = fresh();
  const holder = await store.tryLock(resourceId);
  const waiting = [];
  for (const name of ["first", "second"]) {
    waiting.push(store.lock(resourceId, { label: name }));
    const deadline = performance.now() + CALL_TIMEOUT_MS / 2;
    while ((await inspector.get({ resourceId })).waiters < waiting.length) {
      if (performance.now() > deadline) {
        throw new Error(`${name} is not shown as waiting`);
      }
      await sleep(20);
    }
  }
  const shown = await pages((fields) => inspector.waiters(fields), 1, { resourceId });
  await store.unlock(resourceId, holder.lockId);
  for (const call of waiting) {
    await store.unlock(resourceId, (await call).lockId);
  }
  expect("longest page", longest(shown.map(({ waiters }) => waiters.length)), 1);
  const order = shown.flatMap(({ waiters }) => waiters).map((waiter) => `${waiter.position} ${label(waiter)}`);
  expect("queue", order.join(), "1 first,2 second");
}

// Holds the resources while `body` runs, each labelled with its name.
async function held(store, namespace, resources, body) {
  const grants = {};
  for (const name of resources) {
    grants[name] = await store.tryLock(name, { namespace, label: name });
  }
  try {
    return await body(grants);
  } finally {
    for (const [name, { lockId }] of Object.entries(grants)) {
      await store.unlock(name, lockId, { namespace }).catch(() => "a check has ended it");
    }
  }
}

async function listing(inspector, store) {
  const namespace = [fresh()];
  await held(store, namespace, ["a", "b", "c"], async (grants) => {
    const shown = await pages((fields) => inspector.list(fields), 2, { scope: { namespace } });
    expect("longest page", longest(shown.map(({ locks }) => locks.length)), 2);
    const states = shown.flatMap(({ locks }) => locks);
    // A list is no snapshot: a lock may be listed again where a page ends.
    expect("names", [...new Set(names(states).split(","))].join(), "a,b,c");
    for (const state of states) {
      expect(`grants of ${state.resourceId}`, ids(state.grants), ids([grants[state.resourceId]]));
    }
  });
}

async function scopes(inspector, store) {
  const namespace = [fresh()];
  const listed = async (scope, holderPrefix = "") =>
    names((await inspector.list({ scope: { namespace, ...scope }, holderPrefix })).locks);
  await held(store, namespace, ["a-1", "b-1"], () =>
    held(store, [...namespace, "below"], ["a-2"], async () => {
      const { lock } = await inspector.get({ resourceId: "b-1", namespace });
      expect("the namespace", await listed({}), "a-1,b-1");
      expect("with those below", await listed({ children: true }), "a-1,a-2,b-1");
      expect("a prefix", await listed({ prefix: "a-" }), "a-1");
      expect("a holder", await listed({}, lock.grants[0].holder), "b-1");
    }),
  );
}

async function nextState(next) {
  for (;;) {
    const event = await next();
    if (event.state) {
      return event;
    }
  }
}

// Folds the events into a table of grant IDs, until all locks were sent.
async function untilSynced(next) {
  const table = new Map();
  for (;;) {
    const { state, restarted, synced } = await next();
    if (restarted) {
      table.clear();
    }
    if (state) {
      table.set(state.resourceId, ids(state.grants));
    }
    if (synced) {
      return [...table].join();
    }
  }
}

const shown = ({ state }) => `${state.resourceId} ${ids(state.grants)}`;

async function watching(inspector, store) {
  const namespace = [fresh()];
  await held(store, namespace, ["a"], (grants) =>
    inspector.watch({ scope: { namespace } }, async (next) => {
      expect("at first", await untilSynced(next), `a,${grants.a.grantId}`);
      const later = await held(store, namespace, ["b"], async ({ b }) => {
        expect("a grant", shown(await nextState(next)), `b ${b.grantId}`);
        return b;
      });
      const event = await nextState(next);
      expect("an end", shown(event), "b ");
      expect("what ended", ids(event.ended.map(({ grant }) => grant)), later.grantId);
      // Not every store can report why a grant ended.
      const { cause } = event.ended[0];
      if (cause !== EndCause.RELEASED && cause !== EndCause.UNKNOWN) {
        throw new Error(`the cause is ${EndCause[cause]}`);
      }
    }),
  );
}

async function watchingOne(inspector, store) {
  const namespace = [fresh()];
  await inspector.watch({ resourceId: "a", namespace }, async (next) => {
    await untilSynced(next);
    await held(store, namespace, ["b", "a"], async ({ a }) => {
      expect("a grant", shown(await nextState(next)), `a ${a.grantId}`);
    });
  });
}

async function dryRun(inspector, store) {
  const namespace = [fresh()];
  await held(store, namespace, ["a", "b"], async (grants) => {
    const { ended, more } = await inspector.end({ scope: { namespace }, dryRun: true });
    expect("what would be ended", `${names(ended)} ${more}`, "a,b false");
    for (const [name, { lockId }] of Object.entries(grants)) {
      await store.unlock(name, lockId, { namespace });
    }
  });
}

async function endingAScope(inspector, store) {
  const namespace = [fresh()];
  const scope = { namespace, prefix: "a" };
  await held(store, namespace, ["a", "b"], async ({ a, b }) => {
    const { ended } = await inspector.end({ scope, reason: "a check of the SDKs" });
    expect("what was ended", `${names(ended)} ${ids(ended[0].grants)}`, `a ${a.grantId}`);
    await expectRefusal(() => store.unlock("a", a.lockId, { namespace }), Code.Aborted, "LOCK_LOST", "forced");
    expect("what is left to end", names((await inspector.end({ scope })).ended), "");
    await store.unlock("b", b.lockId, { namespace });
  });
}

async function endingAGrant(inspector, store) {
  const resourceId = fresh();
  const { grantId } = await store.tryLock(resourceId);
  const end = () => inspector.end({ resourceId, grantId });
  expect("what was ended", ids((await end()).ended[0].grants), grantId);
  const successor = await store.tryLock(resourceId);
  await expectRefusal(end, Code.NotFound, "LOCK_NOT_FOUND");
  await store.unlock(resourceId, successor.lockId);
}

async function everything(inspector) {
  // A dry run, so that no locks of others end if the sidecar accepts it.
  const call = () => inspector.end({ scope: { children: true }, dryRun: true });
  await expectRefusal(call, Code.InvalidArgument, "INVALID_REQUEST");
}

async function noSuchStore(inspector) {
  const call = () => inspector.get({ storeName: "nowhere", resourceId: "r" });
  await expectRefusal(call, Code.NotFound, "STORE_NOT_FOUND");
}

const checks = {
  "a held lock is shown with its grant, a free one without": oneLock,
  "the grants of a shared lock are read in pages": readers,
  "those who wait are read in their order, in pages": queue,
  "what is held is listed in pages": listing,
  "a scope chooses by namespace, with those below, by prefix and by holder": scopes,
  "a watch sends what is held, and then each change": watching,
  "a watch of one resource shows no other": watchingOne,
  "a dry run shows what would be ended, and ends nothing": dryRun,
  "the locks of a scope are ended, and their holders lose them": endingAScope,
  "a grant is ended by its ID, and its successor is not": endingAGrant,
  "to end everything must be asked for as such": everything,
  "a store that does not exist is refused": noSuchStore,
};

const report = new Report("js inspection");
const dapr = new DaprClient({ communicationProtocol: CommunicationProtocolEnum.GRPC, logger: { level: "error" } });
const inspector = new Inspector(connect(dapr, Inspection));
const store = new Store(connect(dapr, Locks));
const hasWatch = await inspector.hasWatch();
for (const [sentence, body] of Object.entries(checks)) {
  if (!hasWatch && (body === watching || body === watchingOne)) {
    report.ignore(sentence, "the store has no WATCH: it answers UNSUPPORTED");
  } else {
    await report.check(sentence, () => body(inspector, store));
  }
}
await dapr.stop();
process.exit(report.close());
