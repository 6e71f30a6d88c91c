import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { type Lock, type LockOptions, type Locks, lossOf } from "../src/index.js";
import { cancelled, eventually, failure, fresh, got, loss, onEachBackend, refusal } from "./helpers.js";
import { Sidecar, STORE } from "./sidecar.js";

/** Waits until the sidecar has confirmed the lock, so that its deadline is not the first one. */
async function confirmed(lock: Lock): Promise<void> {
  let last = lock.validFor;
  await eventually("it is confirmed", () => {
    const before = last;
    last = lock.validFor;
    lock.check();
    return last > before;
  });
}

/**
 * The client gives the lock up 4 s before its TTL ends, so that a busy machine may notice the silence
 * late.
 */
const QUIET: LockOptions = { ttl: "9s", stopBefore: "4s" };

/** Takes a lock, lets something happen to it, and waits until the loss is reported. */
async function lose(
  locks: Locks,
  options: LockOptions,
  happening: (lock: Lock) => Promise<void>,
  isConfirmed = false,
) {
  const state = { workHasEnded: false, cancelledAfterMs: 0 };
  const lost = await loss(
    locks.with(fresh(), options, async (lock) => {
      if (isConfirmed) {
        await confirmed(lock);
      }
      const start = performance.now();
      const happened = happening(lock);
      try {
        await cancelled(lock);
      } finally {
        state.cancelledAfterMs = performance.now() - start;
        assert.equal(lock.validFor, 0);
        await happened;
        state.workHasEnded = true;
      }
    }),
  );
  assert(state.workHasEnded);
  return { lost, ...state };
}

onEachBackend((backend, sidecar) => {
  test("a_forced_unlock_cancels_the_work", async () => {
    const { lost } = await lose(sidecar().locks(), { ttl: "20s" }, (lock) => sidecar().force(lock.resource));
    assert.equal(lost.cause, "forced");
  });

  test("a_killed_sidecar_cancels_the_work", async () => {
    await using own = await Sidecar.start(backend);
    const { lost } = await lose(own.locks(), { ttl: "30s" }, () => own.send("kill"));
    assert.equal(lost.cause, "disconnected");
  });

  test("a_cut_connection_cancels_the_work", async () => {
    await using own = await Sidecar.start(backend);
    const locks = own.locksThroughProxy();
    const { lost } = await lose(locks, { ttl: "30s" }, () => own.send("cut"));
    assert.equal(lost.cause, "disconnected");
    await locks.with(fresh(), () => undefined); // over another connection
  });

  test("a_cut_connection_ends_a_wait", async () => {
    await using own = await Sidecar.start(backend);
    const name = fresh();
    const held = await own.locks().lock(name);
    const waiting = refusal(own.locksThroughProxy().lock(name), "UNAVAILABLE");
    await eventually("somebody waits", async () => (await own.waiters(name)) === 1);
    await own.send("cut");
    await waiting;
    await held.unlock();
  });

  test("a_stopped_sidecar_cancels_the_work", async () => {
    await using own = await Sidecar.start(backend);
    const { lost } = await lose(own.locks(), { ttl: "30s" }, () => own.send("stop"));
    assert.equal(lost.cause, "shutting_down");
  });

  test("a_suspended_sidecar_cancels_the_work_before_the_deadline", async () => {
    await using own = await Sidecar.start(backend);
    const { lost, cancelledAfterMs } = await lose(own.locks(), QUIET, () => own.send("suspend"), true);
    assert.equal(lost.cause, "unconfirmed");
    assert(cancelledAfterMs < 9_000, `after ${cancelledAfterMs} ms`);
    await own.send("resume");
  });

  test("a_cut_off_sidecar_cancels_the_work_before_the_deadline", async () => {
    await using own = await Sidecar.start(backend);
    const locks = own.locksThroughProxy();
    const { lost, cancelledAfterMs } = await lose(locks, QUIET, () => own.send("stall"), true);
    assert.equal(lost.cause, "unconfirmed");
    assert(cancelledAfterMs < 9_000, `after ${cancelledAfterMs} ms`);
    await own.send("heal");
    await locks.with(fresh(), { wait: "10s" }, () => undefined);
  });

  test("a_dark_connection_is_replaced", async () => {
    await using own = await Sidecar.start(backend);
    const locks = own.locksThroughProxy();
    // No question is asked before the ping has failed. Node reports that failure as an event of the
    // connection too, after the client is closed here; a missing listener would end the process.
    const long = await locks.lock(fresh(), { ttl: "200s" });
    const { lost } = await lose(locks, { ttl: "3s" }, () => own.send("vanish"));
    assert.equal(lost.cause, "unconfirmed");
    await locks.with(fresh(), { wait: 0 }, () => undefined);
    assert.equal((await loss(cancelled(long))).cause, "disconnected"); // by the pings
    locks.close();
  });

  test("a_lock_outlives_its_first_deadline_while_it_is_confirmed", async () => {
    const lock = await sidecar().locks().lock(fresh(), { ttl: "8s" });
    await Promise.race([new Promise((resolve) => setTimeout(resolve, 9_000)), failure(cancelled(lock))]);
    lock.check();
    await lock.unlock();
  });

  test("the_error_of_the_work_wins", async () => {
    const mine = new Error("the printer is on fire");
    const working = sidecar()
      .locks()
      .with(fresh(), async (lock) => {
        await sidecar().force(lock.resource);
        await failure(cancelled(lock));
        throw mine;
      });
    assert.equal(await failure(working), mine);
    assert.equal(lossOf(mine)?.cause, "forced");
  });

  test("a_failed_unlock_does_not_hide_the_error_of_the_work", async () => {
    await using own = await Sidecar.start(backend);
    const mine = new Error("the printer is on fire");
    const working = own.locks().with(fresh(), { ttl: "60s" }, async () => {
      await own.send("suspend");
      throw mine;
    });
    assert.equal(await failure(working), mine);
    assert.equal(lossOf(mine), undefined);
    await own.send("resume");
  });

  test("a_failed_unlock_is_no_error", async () => {
    await using own = await Sidecar.start(backend);
    const name = fresh();
    const locks = own.locks();
    await locks.with(name, { ttl: "60s" }, () => own.send("suspend"));
    await own.send("resume");
    await locks.with(name, { wait: "20s" }, () => undefined); // the end of the stream has released it
  });

  test("a_killed_process_frees_the_lock", async () => {
    const name = fresh();
    const holder = spawn(process.execPath, [fileURLToPath(new URL("holder.js", import.meta.url)), name], {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, DAPR_GRPC_ENDPOINT: sidecar().address },
    });
    assert.match(String(await once(holder.stdout, "data")), /held/);
    const locks = sidecar().locks({ store: STORE });
    assert.equal(await locks.tryLock(name), null);
    const next = locks.lock(name, { wait: "20s" });
    holder.kill("SIGKILL");
    await (await next).unlock(); // its TTL is 60 s
  });

  test("a_suspended_process_sees_the_loss_by_check", async () => {
    const script = fileURLToPath(new URL("lifetime.js", import.meta.url));
    const holder = spawn(process.execPath, [script, "check", fresh()], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, DAPR_GRPC_ENDPOINT: sidecar().address },
    });
    const lines = createInterface({ input: holder.stdout })[Symbol.asyncIterator]();
    const says = async () => String((await lines.next()).value);
    try {
      assert.equal(await says(), "held");
      // The sidecar goes on renewing the lock, so that only the clock of the holder shows the loss.
      holder.kill("SIGSTOP");
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      holder.stdin.write("\n"); // waits for the holder, before any of its timers
      holder.kill("SIGCONT");
      assert.equal(await says(), "lost: unconfirmed");
      await new Promise((resolve) => setTimeout(resolve, 1_000)); // answers may arrive now
      holder.stdin.end("\n");
      assert.equal(await says(), "lost: unconfirmed");
    } finally {
      holder.kill("SIGKILL");
    }
  });

  test("a_loss_that_is_not_awaited_is_kept", async () => {
    const locks = sidecar().locks();
    const crashes: unknown[] = [];
    const note = (error: unknown) => crashes.push(error);
    process.on("unhandledRejection", note).on("uncaughtException", note);
    const lock = got(await locks.tryLock(fresh()));
    await sidecar().force(lock.resource);
    await failure(cancelled(lock));
    await new Promise((resolve) => setTimeout(resolve, 50)); // for what is reported late
    process.off("unhandledRejection", note).off("uncaughtException", note);
    assert.deepEqual(crashes, []);
    assert.equal((await loss(lock.unlock())).cause, "forced");
    await lock.unlock();
  });
});
