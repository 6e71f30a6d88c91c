// Re-entrancy, and handles without a scope.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LockLost, lossOf } from "../src/index.js";
import { cancelled, failure, fresh, got, loss, notAcquired, onEachBackend, refusal } from "./helpers.js";

const again = { reentrant: true };

onEachBackend((_, sidecar) => {
  test("a_reentrant_lock_counts", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    await locks.with(name, again, async (outer) => {
      await locks.with(name, again, (inner) => {
        assert.equal(inner.token, outer.token);
        assert.equal(inner.lockId, outer.lockId);
      });
      const third = await locks.lock(name, again);
      const fourth = got(await locks.tryLock(name, again));
      await third.unlock();
      await third.unlock(); // counts once
      await fourth.unlock();
      outer.check();
      assert.equal(await locks.tryLock(name), null);
      await refusal(locks.lock(name, { ...again, mode: "shared" }), "INVALID_REQUEST");
      const other = await locks.lock(name, { ...again, namespace: ["else"] });
      assert.notEqual(other.token, outer.token); // the name in another namespace is another lock
      await other.unlock();
    });
    await got(await locks.tryLock(name)).unlock();
  });

  test("an_inner_handle_is_of_the_same_grant_and_ends_alone", async () => {
    const locks = sidecar().locks();
    const lost = await loss(
      locks.with(fresh(), again, async (outer) => {
        const inner = await locks.lock(outer.resource, again);
        assert.equal(inner.grantId, outer.grantId);
        await inner.unlock();
        await sidecar().force(outer.resource);
        await failure(cancelled(outer));
        assert.throws(
          () => {
            inner.check();
          },
          { name: "LockLost", cause: "ended" }, // as it was unlocked before the loss
        );
        assert(!inner.signal.aborted);
      }),
    );
    assert.equal(lost.cause, "forced");
  });

  test("two_clients_are_two_owners", async () => {
    const [locks, others] = [sidecar().locks(), sidecar().locks()];
    await locks.with(fresh(), again, async ({ resource }) => {
      assert.equal(await others.tryLock(resource, again), null);
      await got(await locks.tryLock(resource, again)).unlock();
    });
  });

  test("a_cancelled_caller_does_not_enter_an_inner_scope", async () => {
    const locks = sidecar().locks();
    const signal = AbortSignal.abort(new Error("no more"));
    await locks.with(fresh(), again, async ({ resource }) => {
      const inner = locks.with(resource, { ...again, signal }, () => assert.fail("the work was run"));
      assert.equal(await failure(inner), signal.reason);
    });
  });

  test("an_inner_lock_that_outlives_its_scope_keeps_the_lock", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const inner = await locks.with(name, again, () => locks.lock(name, again));
    inner.check();
    assert.equal(await locks.tryLock(name, again), null); // this is not the task that has it
    await inner.unlock();
    await got(await locks.tryLock(name)).unlock();
  });

  test("a_lost_lock_is_not_taken_again", async () => {
    const locks = sidecar().locks();
    const lost = await loss(
      locks.with(fresh(), again, async (outer) => {
        const inner = await locks.lock(outer.resource, again);
        await sidecar().force(outer.resource);
        await failure(cancelled(inner));
        await locks.with(outer.resource, again, () => assert.fail("the work was run"));
      }),
    );
    assert.equal(lost.cause, "forced");
  });

  test("tasks_side_by_side_do_not_share_a_reentrant_lock", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    let inside = 0;
    const worker = () =>
      locks.with(name, again, async (lock) => {
        inside += 1;
        assert.equal(inside, 1);
        await locks.with(name, again, () => new Promise((resolve) => setTimeout(resolve, 20)));
        inside -= 1;
        return lock.token;
      });
    const [first, second] = await Promise.all([worker(), worker()]);
    assert.notEqual(first, second);
  });

  test("a_lock_is_not_reentrant_by_default", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    await locks.with(name, async () => {
      await notAcquired(locks.lock(name, { wait: "1s" }), "WAIT_DEADLINE");
      await notAcquired(locks.lock(name, { wait: "1s", reentrant: true }), "WAIT_DEADLINE");
    });
  });

  test("await_using_unlocks", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    {
      await using lock = await locks.tryLock(name);
      await using none = await locks.tryLock(name);
      assert(lock !== null && none === null);
    }
    await got(await locks.tryLock(name)).unlock();
  });

  test("await_using_reports_a_loss", async () => {
    const locks = sidecar().locks();
    const scope = async (end: () => void) => {
      await using lock = await locks.lock(fresh());
      await sidecar().force(lock.resource);
      await failure(cancelled(lock));
      end();
    };
    assert.equal((await loss(scope(() => undefined))).cause, "forced");
    // The loss that `check` has thrown comes alone.
    const checked = async () => {
      await using lock = await locks.lock(fresh());
      await sidecar().force(lock.resource);
      await failure(cancelled(lock));
      lock.check();
    };
    assert.equal((await loss(checked())).cause, "forced");
    const both = await failure(
      scope(() => {
        throw new Error("mine");
      }),
    );
    assert.equal(lossOf(both)?.cause, "forced");
    assert.match(String((both as { suppressed: unknown }).suppressed), /mine/);
  });

  test("one_signal_may_be_given_to_many_locks", async () => {
    const locks = sidecar().locks();
    const [caller, warnings] = [new AbortController(), new Array<Error>()];
    const note = (warning: Error) => warnings.push(warning);
    process.on("warning", note);
    const { signal } = caller;
    const held = await Promise.all(Array.from({ length: 20 }, () => locks.lock(fresh(), { signal })));
    const [first, ...others] = held;
    await first?.unlock();
    caller.abort();
    assert(first?.signal.aborted === false);
    for (const lock of others) {
      assert.equal(lock.signal.reason, signal.reason);
      await lock.unlock();
    }
    process.off("warning", note);
    assert.deepEqual(warnings, []);
  });

  test("a_handle_reports_its_callers_cancellation", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    const caller = new AbortController();
    const lock = await locks.lock(name, { signal: caller.signal });
    const reason = new Error("no more");
    caller.abort(reason);
    assert.equal(await failure(cancelled(lock)), reason);
    lock.check(); // it is still held
    assert.equal(await locks.tryLock(name), null);
    await lock.unlock();
  });

  test("a_cancelled_scope_that_ends_well_returns_its_result", async () => {
    const caller = new AbortController();
    const result = await sidecar()
      .locks()
      .with(fresh(), { signal: caller.signal }, async (lock) => {
        caller.abort();
        await failure(cancelled(lock));
        return "what there was";
      });
    assert.equal(result, "what there was");
  });

  test("the_end_of_cancelled_work_is_no_error_of_its_own", async () => {
    const locks = sidecar().locks();
    const endings: ((signal: AbortSignal) => Promise<unknown>)[] = [
      (signal) =>
        new Promise((resolve) => setTimeout(resolve, 10)).then(() => {
          signal.throwIfAborted();
        }),
      () => Promise.resolve("as if nothing had happened"),
      (signal) => import("node:timers/promises").then((timers) => timers.setTimeout(60_000, 0, { signal })),
      (signal) => fetch("http://127.0.0.1:9/", { signal }),
      () => Promise.reject(new DOMException("stopped", "AbortError")),
      (signal) => sidecar().service.checkLocks({}, { signal }),
      async (signal) => {
        try {
          await fetch("http://127.0.0.1:9/", { signal });
        } catch (error) {
          throw new Error("the charge failed", { cause: error });
        }
      },
    ];
    for (const end of endings) {
      const lost = await loss(
        locks.with(fresh(), async (lock) => {
          await sidecar().force(lock.resource);
          await failure(cancelled(lock));
          return await end(lock.signal);
        }),
      );
      assert(lost instanceof LockLost);
      assert.equal(lost.cause, "forced");
    }
  });

  test("an_early_unlock_ends_the_lock_and_not_the_work", async () => {
    const locks = sidecar().locks();
    const name = fresh();
    await locks.with(name, async (lock) => {
      await lock.unlock();
      assert.equal(lock.validFor, 0);
      assert(!lock.signal.aborted);
      await got(await locks.tryLock(name)).unlock();
    });
  });
});
