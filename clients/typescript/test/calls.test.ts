import assert from "node:assert/strict";
import { test } from "node:test";

import { type LockOptions, Locks } from "../src/index.js";
import {
  cancelled,
  eventually,
  failure,
  fresh,
  got,
  loss,
  notAcquired,
  onEachBackend,
  refusal,
} from "./helpers.js";
import { STORE } from "./sidecar.js";

onEachBackend((_, sidecar) => {
  test("a_lock_is_taken_and_released", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const first = await locks.with(name, { ttl: "20s" }, (lock) => {
      assert.equal(lock.resource, name);
      assert(lock.token > 0n);
      assert.notEqual(lock.lockId, "");
      assert.notEqual(lock.grantId, "");
      assert(lock.validFor > 0 && lock.validFor < 20_000, String(lock.validFor));
      assert(!lock.signal.aborted);
      lock.check();
      return lock;
    });
    assert.equal(first.validFor, 0);
    assert.throws(
      () => {
        first.check();
      },
      { name: "LockLost", cause: "ended" },
    );
    const second = got(await locks.tryLock(name));
    assert(second.token > first.token);
    await second.unlock();
    assert.equal(await locks.tryWith(name, (lock) => lock.token > second.token), true);
  });

  test("a_try_of_a_held_lock_gives_nothing", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const lock = await locks.lock(name);
    assert.equal(await locks.tryLock(name), null);
    assert.equal(await locks.tryWith(name, () => assert.fail("the work was run")), null);
    await lock.unlock();
  });

  test("a_lock_waits_for_its_turn", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const first = await locks.lock(name);
    const waiting = locks.lock(name, { wait: "30s" });
    await eventually("somebody waits", async () => (await sidecar().waiters(name)) === 1);
    await first.unlock();
    const second = await waiting;
    assert(second.token > first.token);
    await second.unlock();
  });

  test("a_wait_ends_at_its_limit", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const lock = await locks.lock(name);
    const { message } = await notAcquired(locks.lock(name, { wait: "1s" }), "WAIT_DEADLINE");
    assert.equal(message, `the lock "${name}" was not acquired within 1 s`);
    await notAcquired(
      locks.with(name, { wait: 1000 }, () => assert.fail("the work was run")),
      "WAIT_DEADLINE",
    );
    await lock.unlock();
  });

  test("a_try_that_may_not_wait_names_the_holder", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const lock = await locks.lock(name, { label: "nightly-import" });
    const refused = await notAcquired(locks.lock(name, { wait: 0 }), "RESOURCE_LOCKED");
    assert.match(refused.holder ?? "", /^app\/.+\/nightly-import$/);
    assert.equal(refused.message, `the lock "${name}" is held by ${refused.holder}`);
    await lock.unlock();
  });

  test("the_label_is_seen_by_inspection", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const lock = await locks.lock(name, { label: "invoice run" });
    const seen = await sidecar().inspection.getLock({ storeName: STORE, resourceId: name });
    const [grant] = seen.lock?.grants ?? [];
    assert.match(grant?.holder ?? "", /\/invoice run$/);
    assert.equal(grant?.grantId, lock.grantId);
    await lock.unlock();
  });

  test("namespaces_are_apart", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const held = [
      await locks.tryLock(name),
      await locks.tryLock(name, { namespace: ["shop", "eu"] }),
      await locks.tryLock(name, { namespace: ["shop"] }),
    ].map(got);
    assert.equal(await locks.tryLock(name, { namespace: ["shop", "eu"] }), null);
    for (const lock of held) {
      await lock.unlock();
    }
    await got(await locks.tryLock(name, { namespace: ["shop", "eu"] })).unlock();
  });

  test("readers_share_a_lock", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const readers = [await locks.lock(name, { mode: "shared" }), await locks.lock(name, { mode: "shared" })];
    assert.equal(await locks.tryLock(name), null);
    for (const reader of readers) {
      await reader.unlock();
    }
    await got(await locks.tryLock(name)).unlock();
  });

  test("max_hold_ends_the_lock", async () => {
    const locks = sidecar().locks();
    let hasEnded = false;
    const lost = await loss(
      locks.with(fresh(), { ttl: "20s", maxHold: "3s" }, async (lock) => {
        try {
          await cancelled(lock);
        } finally {
          hasEnded = true;
        }
      }),
    );
    assert.equal(lost.cause, "max_hold");
    assert(hasEnded);
  });

  test("max_hold_ends_a_lock_of_a_short_ttl", async () => {
    const locks = sidecar().locks();
    const elapsed = async (options: LockOptions) => {
      const start = performance.now();
      const lost = await loss(locks.with(fresh(), { ...options, maxHold: "3s" }, cancelled));
      assert.equal(lost.cause, "max_hold", JSON.stringify(options));
      return performance.now() - start;
    };
    // The client's own deadline is the first one where it stops before the end, the sidecar's report
    // where it does not.
    const all = [{ ttl: "20s" }, { ttl: "30s" }, { ttl: "30s", stopBefore: 0 }];
    for (const ms of await Promise.all(all.map(elapsed))) {
      assert(ms >= 2_500, String(ms));
    }
    const lock = await locks.lock(fresh(), { ttl: "20s", maxHold: "10s" });
    // A tenth of maxHold, which is shorter than the TTL.
    assert(lock.validFor > 7_000 && lock.validFor <= 9_000, String(lock.validFor));
    await lock.unlock();
  });

  test("a_repeated_request_id_finds_its_grant", async () => {
    const locks = sidecar().locks();
    const [name, requestId] = [fresh(), fresh()];
    const first = await locks.lock(name, { requestId });
    const second = await locks.lock(name, { requestId });
    assert.equal(second.token, first.token);
    assert.equal((await loss(cancelled(first))).cause, "ended");
    assert.equal((await loss(first.unlock())).cause, "ended");
    second.check();
    await second.unlock();
  });

  test("a_bad_option_is_named", async () => {
    const locks = new Locks({ store: STORE, address: "127.0.0.1:1" }); // nothing is sent
    const bad: [string, LockOptions][] = [
      ["ttl", { ttl: 0 }],
      ["ttl", { ttl: "0s" }],
      ["ttl", { ttl: "10" }],
      ["ttl", { ttl: "ten seconds" }],
      ["ttl", { ttl: Number.NaN }],
      ["ttl", { ttl: 10n as unknown as number }],
      ["ttl", { ttl: 1e300 }],
      ["maxHold", { maxHold: 0 }],
      ["maxHold", { maxHold: -1 }],
      ["wait", { wait: -1 }],
      ["wait", { wait: Infinity }],
      ["stopBefore", { stopBefore: -1 }],
      ["stopBefore", { stopBefore: "-1s" }],
      ["mode", { mode: "both" as "shared" }],
      ["namespace", { namespace: "shop" as unknown as string[] }],
      ["label", { label: 7 as unknown as string }],
      ["requestId", { requestId: 7 as unknown as string }],
      ["signal", { signal: "stop" as unknown as AbortSignal }],
    ];
    for (const [option, options] of bad) {
      const { message } = await refusal(locks.lock(fresh(), options), "INVALID_REQUEST");
      assert(message.startsWith(`${option}: `), message);
    }
    assert.match((await refusal(locks.lock(""), "INVALID_REQUEST")).message, /^name: /);
    assert.match(
      (await refusal(locks.tryLock("a", { wait: 1 } as object), "INVALID_REQUEST")).message,
      /^wait: /,
    );
    assert.match(
      (await refusal(locks.with("a", {} as () => void), "INVALID_REQUEST")).message,
      /^work must be a function$/,
    );
    assert.throws(
      () => new Locks({ store: STORE, adress: "127.0.0.1:1" } as { store: string }),
      /^LeaseholdError: adress: there is no such option$/,
    );
    assert.throws(() => new Locks({ store: "" }), /^LeaseholdError: store: /);
    assert.throws(() => new Locks({ store: STORE, address: "nonsense" }), /^LeaseholdError: address: /);

    for (const key of ["max_hold", "waitt"]) {
      const unknown = refusal(locks.lock("a", { [key]: "10s" }), "INVALID_REQUEST");
      assert.equal((await unknown).message, `${key}: there is no such option`);
    }
    const tooLong = refusal(locks.lock("a", { maxHold: "2s", stopBefore: "2s" }), "INVALID_REQUEST");
    assert.equal((await tooLong).message, "stopBefore is not shorter than maxHold");

    const { message } = await refusal(sidecar().locks().lock(fresh(), { label: "a\nb" }), "INVALID_REQUEST");
    assert.match(message, /label/);
    await refusal(sidecar().locks({ store: "nowhere" }).lock(fresh()), "STORE_NOT_FOUND");
  });

  test("a_stop_before_that_leaves_no_time_is_refused", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    for (const stopBefore of ["1880ms", "3s"]) {
      const refused = refusal(
        locks.with(name, { ttl: "2s", stopBefore }, () => assert.fail("the work was run")),
        "INVALID_REQUEST",
      );
      assert.equal((await refused).message, "stopBefore is not shorter than the granted TTL of 2 s");
      await got(await locks.tryLock(name)).unlock(); // released at once
    }
    await locks.with(name, { ttl: "9s", stopBefore: "4s" }, (lock) => {
      lock.check();
    });
  });

  test("an_unlock_is_idempotent", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const first = await locks.lock(name);
    await Promise.all([first.unlock(), first.unlock()]);
    assert.equal(first.validFor, 0);
    assert.throws(
      () => {
        first.check();
      },
      { name: "LockLost", cause: "ended" },
    );
    assert(!first.signal.aborted);
    const second = got(await locks.tryLock(name));
    await first.unlock();
    assert.equal(await locks.tryLock(name), null);
    await second.unlock();
  });

  test("an_unlock_is_not_cancelled_with_its_caller", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const caller = new AbortController();
    const reason = new Error("the user has left");
    let hasEnded = false;
    const working = locks.with(name, { signal: caller.signal }, async (lock) => {
      caller.abort(reason);
      try {
        await cancelled(lock);
      } finally {
        assert.equal(await locks.tryLock(name), null); // still held while the work ends
        hasEnded = true;
      }
    });
    assert.equal(await failure(working), reason);
    assert(hasEnded);
    await got(await locks.tryLock(name)).unlock();
  });

  test("a_cancelled_wait_leaves_nothing", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const first = await locks.lock(name);
    const caller = new AbortController();
    const cancelledWait = failure(locks.lock(name, { signal: caller.signal }));
    await eventually("one waits", async () => (await sidecar().waiters(name)) === 1);
    const next = locks.lock(name, { wait: "30s" });
    await eventually("two wait", async () => (await sidecar().waiters(name)) === 2);
    caller.abort(new Error("no more"));
    assert.match(String(await cancelledWait), /no more/);
    await eventually("one is left", async () => (await sidecar().waiters(name)) === 1);
    await first.unlock();
    await (await next).unlock();
    await eventually("nobody waits", async () => (await sidecar().waiters(name)) === 0);
    assert.equal(await failure(locks.lock(name, { signal: caller.signal })), caller.signal.reason);
  });
});
