// In a file of its own, because it blocks the process of its tests.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LockLost } from "../src/index.js";
import { fresh, loss, onEachBackend } from "./helpers.js";

onEachBackend((_, sidecar) => {
  test("work_that_blocks_sees_the_loss_by_check", async () => {
    let hasSeen = false;
    const lost = await loss(
      sidecar()
        .locks()
        .with(fresh(), { ttl: "2s" }, (lock) => {
          const nothing = new Int32Array(new SharedArrayBuffer(4));
          // Nothing else runs meanwhile: no timer, no answer of the sidecar.
          Atomics.wait(nothing, 0, 0, lock.validFor + 1);
          assert(!lock.signal.aborted);
          assert.throws(
            () => {
              lock.check();
            },
            (error) => error instanceof LockLost && error.cause === "unconfirmed",
          );
          assert(lock.signal.aborted);
          assert.equal(lock.validFor, 0);
          hasSeen = true;
        }),
    );
    assert.equal(lost.cause, "unconfirmed");
    assert(hasSeen);
  });
});
