// What needs no sidecar.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Code, ConnectError } from "@connectrpc/connect";

import { suspensionAware } from "../src/clock.js";
import { endpoint } from "../src/connection.js";
import { nanoseconds } from "../src/duration.js";
import { attachLoss, isCancellation } from "../src/errors.js";
import { plan } from "../src/options.js";
import { LeaseholdError, LockLost, Locks, type LocksOptions, lossOf } from "../src/index.js";

test("a client without options is refused", () => {
  const make = () => new Locks(undefined as unknown as LocksOptions);
  assert.throws(make, { reason: "INVALID_REQUEST", message: /^store: / });
});

test("half of a surrogate pair is refused", () => {
  assert.throws(() => plan("s", "a\ud800", {}, false), { message: /^name: / });
  assert.throws(() => plan("s", "a", { namespace: ["\udfffa"] }, false), { message: /^namespace: / });
  assert.equal(plan("s", "a\u{1f512}", {}, false).name, "a\u{1f512}");
});

test("durations are read", () => {
  const cases: [number | string, bigint][] = [
    ["10s", 10_000_000_000n],
    ["1h30m", 5_400_000_000_000n],
    ["1.5s", 1_500_000_000n],
    ["250ms", 250_000_000n],
    ["1m0.5s", 60_500_000_000n],
    [1500, 1_500_000_000n],
    [0.5, 500_000n],
    [0, 0n],
    ["0s", 0n],
  ];
  for (const [written, want] of cases) {
    assert.equal(nanoseconds("wait", written, "zero"), want, String(written));
  }
});

test("the clock counts what it was suspended for, once", () => {
  let [monotonic, sinceStart] = [5_000n, 900_000_000_000n];
  const now = suspensionAware(
    () => monotonic,
    () => sinceStart,
  );
  assert.equal(now(), 5_000n);
  const pass = (by: bigint) => {
    monotonic += by;
    sinceStart += by;
  };
  pass(1_000_000_000n);
  sinceStart += 10_000_000n; // rounding
  assert.equal(now(), 1_000_005_000n);
  sinceStart += 60_000_000_000n; // suspended
  const after = now();
  assert(after >= 61_000_005_000n, String(after));
  assert.equal(now(), after);
  pass(1_000n);
  assert.equal(now(), after + 1_000n);
  sinceStart = 0n; // it cannot be read any more
  assert.equal(now(), after + 1_000n);
});

test("a clock that cannot be read at first makes no jump when it can", () => {
  let [monotonic, fails] = [5_000n, true];
  const now = suspensionAware(
    () => monotonic,
    () => {
      if (fails) {
        throw new Error("not permitted");
      }
      return 900_000_000_000n + monotonic;
    },
  );
  assert.equal(now(), 5_000n);
  fails = false;
  monotonic += 1_000n;
  assert.equal(now(), 6_000n);
});

test("addresses are read", () => {
  const cases: [string, string, string?][] = [
    ["127.0.0.1:50001", "http://127.0.0.1:50001"],
    ["[::1]:50001", "http://[::1]:50001"],
    ["http://sidecar:50001", "http://sidecar:50001"],
    ["https://sidecar:443/", "https://sidecar"],
    ["unix:/run/dapr.socket", "http://localhost", "/run/dapr.socket"],
    ["unix:///run/dapr.socket", "http://localhost", "/run/dapr.socket"],
  ];
  for (const [address, url, socket] of cases) {
    assert.deepEqual(endpoint(address), socket === undefined ? { url } : { url, socket });
  }
  for (const bad of [
    "",
    "sidecar",
    "ftp://sidecar:1",
    "http://sidecar:1/path",
    "sidecar:port",
    "a@b:1",
    "unix:",
  ]) {
    assert.throws(() => endpoint(bad), { name: "LeaseholdError", reason: "INVALID_REQUEST" }, bad);
  }
});

test("a loss is found wherever it is", () => {
  const lost = new LockLost("order-1", "forced");
  assert.equal(lossOf(lost), lost);
  assert.equal(lossOf(new Error("wrapped", { cause: new Error("twice", { cause: lost }) })), lost);
  assert.equal(lossOf(new Error("mine")), undefined);
  assert.equal(lossOf("text"), undefined);
  const endless = Object.assign(new Error("endless"), { error: {} });
  endless.error = endless.cause = endless;
  assert.equal(lossOf(endless), undefined);
  const cause = new Error("the first cause");
  const mine = new Error("mine", { cause });
  attachLoss(mine, lost);
  assert.equal(lossOf(mine), lost);
  assert.equal(mine.cause, cause);
  for (const closed of [Object.freeze(new Error("frozen")), "text", undefined]) {
    attachLoss(closed, lost); // does not throw
  }
  assert(lost instanceof LeaseholdError);
});

test("only a cancellation counts as one", () => {
  const lost = new LockLost("order-1", "forced");
  assert(isCancellation(lost, lost));
  assert(isCancellation(new ConnectError("stopped", Code.Canceled), lost));
  assert(isCancellation(ConnectError.from(lost, Code.Internal), lost));
  assert(!isCancellation(new ConnectError("broken", Code.Unavailable), lost));
  assert(!isCancellation(new LockLost("order-2", "forced"), lost));
  assert(isCancellation(new Error("the charge failed", { cause: lost }), lost));
  assert(isCancellation(new Error("twice", { cause: new Error("once", { cause: lost }) }), lost));
  assert(isCancellation(new DOMException("stopped", "AbortError"), lost));
  // Something else has cancelled it, or it has nothing to do with a cancellation.
  assert(!isCancellation(new DOMException("too slow", "TimeoutError"), lost));
  const timeout = Object.assign(new Error("stopped", { cause: new Error("too slow") }), {
    name: "AbortError",
  });
  assert(!isCancellation(timeout, lost));
  const endless = new Error("endless");
  endless.cause = endless;
  assert(!isCancellation(endless, lost));
  for (const odd of [undefined, null, "text"]) {
    assert(!isCancellation(odd, lost));
  }
});
