package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

class LossTest extends OnEachBackend {
  private static final Duration TTL = Duration.ofSeconds(9);

  /**
   * The client gives the lock up this long before its TTL ends, so that a busy machine may notice
   * the silence late.
   */
  private static final Duration STOP = Duration.ofSeconds(4);

  private static final LockOptions SHORT = LockOptions.builder().ttl(TTL).stopBefore(STOP).build();

  /** Work under a lock that goes on until it is interrupted, and then for a while more. */
  private static final class Worker {
    final CountDownLatch started = new CountDownLatch(1);
    final AtomicBoolean ended = new AtomicBoolean();
    volatile long interruptedAt;
    final Actor<Void> actor;

    Worker(Locks locks, String name, LockOptions options) {
      actor =
          new Actor<>(
              () -> {
                locks.withLock(name, options, lock -> work());
                return null;
              });
    }

    private void work() throws InterruptedException {
      started.countDown();
      try {
        Actor.workUntilInterrupted();
      } catch (InterruptedException interrupted) {
        interruptedAt = System.nanoTime();
        Thread.sleep(100); // so that a report before the end of the work would be seen
        ended.set(true);
        throw interrupted;
      }
    }

    /** The loss, which is reported after the work has ended and leaves no interrupt behind. */
    LossCause loss() {
      LockLostException lost = actor.failure(LockLostException.class);
      assertTrue(ended.get(), "the loss was reported before the work had ended");
      assertFalse(actor.interruptedAtEnd(), "the interrupt of the loss is left");
      return lost.lossCause();
    }
  }

  /** The loss that a worker gets when something is done to its own sidecar. */
  private LossCause lossAfter(Consumer<TestSidecar> mishap) throws Exception {
    try (TestSidecar own = TestSidecar.start(backend);
        Locks locks = own.locks()) {
      Worker worker = new Worker(locks, newName(), SHORT);
      Actor.await(worker.started);
      mishap.accept(own);
      return worker.loss();
    }
  }

  @Test
  void aForcedUnlockCancelsTheWork() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      Worker worker = new Worker(locks, name, LockOptions.defaults());
      Actor.await(worker.started);
      sidecar().force(name);
      assertEquals(LossCause.FORCED, worker.loss());
    }
  }

  @Test
  void maxHoldEndsTheLock() throws Exception {
    String name = newName();
    LockOptions options = LockOptions.builder().maxHold(Duration.ofSeconds(3)).build();
    try (Locks locks = sidecar().locks()) {
      Worker worker = new Worker(locks, name, options);
      Actor.await(worker.started);
      assertEquals(LossCause.MAX_HOLD, worker.loss());
      locks.lock(name).close();
    }
  }

  @Test
  void maxHoldEndsALockOfAShortTtl() throws Exception {
    Duration hold = Duration.ofSeconds(8);
    LockOptions options =
        SHORT.toBuilder().maxHold(hold).stopBefore(Duration.ofMillis(4500)).build();
    try (Locks locks = sidecar().locks()) {
      long since = System.nanoTime();
      Worker worker = new Worker(locks, newName(), options);
      Actor.await(worker.started);
      assertEquals(LossCause.MAX_HOLD, worker.loss());
      long took = TimeUnit.NANOSECONDS.toMillis(worker.interruptedAt - since);
      assertTrue(took < hold.toMillis(), "cancelled after " + took + " ms");
    }
    // Of the defaults, the tenth of maxHold counts, and not that of the TTL, which is longer.
    LockOptions defaults = LockOptions.builder().ttl(TTL).maxHold(Duration.ofSeconds(4)).build();
    try (Locks locks = sidecar().locks();
        HeldLock lock = locks.lock(newName(), defaults)) {
      Eventually.check("the lock is lost", lock::isLost);
      assertEquals(
          LossCause.MAX_HOLD, assertThrows(LockLostException.class, lock::close).lossCause());
    }
  }

  @Test
  void aSuspendedProcessSeesTheLossByCheck() throws Exception {
    String name = newName();
    Process child = Child.start(name, "6", Map.of(), sidecar().address());
    try {
      assertTrue(Child.token(child) > 0);
      assertEquals("held", Child.check(child));
      Child.signal(child, "STOP");
      Thread.sleep(7000);
      // The sidecar lives and renews: only the child's own clock shows the loss.
      assertEquals(1, sidecar().inspect(name).getLock().getGrantsCount());
      Child.askForCheck(child); // answered as soon as it goes on
      Child.signal(child, "CONT");
      assertEquals("unconfirmed", Child.answer(child));
      Thread.sleep(2000); // longer than between two questions to the sidecar
      assertEquals("unconfirmed", Child.check(child));
    } finally {
      child.destroyForcibly();
    }
  }

  @Test
  void aKilledSidecarCancelsTheWork() throws Exception {
    assertEquals(LossCause.DISCONNECTED, lossAfter(sidecar -> sidecar.command("kill")));
  }

  @Test
  void aStoppedSidecarCancelsTheWork() throws Exception {
    assertEquals(LossCause.SHUTTING_DOWN, lossAfter(sidecar -> sidecar.command("stop")));
  }

  @Test
  void aDarkConnectionIsReplaced() throws Exception {
    try (TestSidecar own = TestSidecar.start(backend);
        Locks locks = own.locksByProxy()) {
      LockOptions minute = LockOptions.builder().ttl(Duration.ofMinutes(1)).build();
      Worker lasting = new Worker(locks, newName(), minute);
      Worker brief = new Worker(locks, newName(), SHORT);
      Actor.await(lasting.started);
      Actor.await(brief.started);
      own.command("vanish");
      assertEquals(LossCause.UNCONFIRMED, brief.loss());
      locks.lock(newName(), Duration.ZERO).close();
      assertEquals(LossCause.DISCONNECTED, lasting.loss()); // by the pings
    }
  }

  @Test
  void aSuspendedSidecarCancelsTheWorkBeforeTheDeadline() throws Exception {
    try (TestSidecar own = TestSidecar.start(backend);
        Locks locks = own.locks()) {
      unconfirmed(own, locks, "suspend", "resume");
    }
  }

  @Test
  void aCutOffSidecarCancelsTheWorkBeforeTheDeadline() throws Exception {
    try (TestSidecar own = TestSidecar.start(backend);
        Locks locks = own.locksByProxy()) {
      unconfirmed(own, locks, "stall", "heal");
    }
  }

  private static void unconfirmed(TestSidecar own, Locks locks, String begin, String end)
      throws Exception {
    Worker worker = new Worker(locks, newName(), SHORT);
    Actor.await(worker.started);
    // Longer than the grant alone, so that it is the answers to CheckLocks that count.
    Thread.sleep(TTL.minus(STOP).plusMillis(500).toMillis());
    assertFalse(worker.actor.isDone());
    long since = System.nanoTime();
    own.command(begin);
    assertEquals(LossCause.UNCONFIRMED, worker.loss());
    long took = TimeUnit.NANOSECONDS.toMillis(worker.interruptedAt - since);
    assertTrue(took < TTL.toMillis(), "cancelled after " + took + " ms");
    own.command(end);
  }

  @Test
  void aShortOutageLeavesTheLock() throws Exception {
    LockOptions longer = LockOptions.builder().ttl(Duration.ofSeconds(9)).build();
    try (TestSidecar own = TestSidecar.start(backend);
        Locks locks = own.locksByProxy();
        HeldLock lock = locks.lock(newName(), longer)) {
      lock.run(
          () -> {
            own.command("stall");
            Thread.sleep(2000); // a question is given up after 1.5 s
            own.command("heal");
            Thread.sleep(8000); // beyond what was confirmed before
            lock.check();
          });
    }
  }

  @Test
  void workThatBlocksSeesTheLossByCheck() throws Exception {
    String name = newName();
    CountDownLatch started = new CountDownLatch(1);
    CountDownLatch unblocked = new CountDownLatch(1);
    CompletableFuture<HeldLock> handle = new CompletableFuture<>();
    CompletableFuture<LockLostException> seen = new CompletableFuture<>();
    CompletableFuture<LockLostException> heard = new CompletableFuture<>();
    try (Locks locks = sidecar().locks()) {
      Actor<Void> worker =
          new Actor<>(
              () -> {
                locks.withLock(
                    name,
                    LockOptions.defaults(),
                    lock -> {
                      lock.onLost(heard::complete);
                      handle.complete(lock);
                      started.countDown();
                      blockWhateverComes(unblocked);
                      seen.complete(assertThrows(LockLostException.class, lock::check));
                      lock.check();
                    });
                return null;
              });
      Actor.await(started);
      sidecar().force(name);
      assertEquals(LossCause.FORCED, heard.get(40, TimeUnit.SECONDS).lossCause());
      assertEquals(Duration.ZERO, handle.get().validFor());
      assertFalse(worker.isDone(), "the loss was reported before the work had ended");
      unblocked.countDown();
      LockLostException lost = worker.failure(LockLostException.class);
      assertEquals(LossCause.FORCED, lost.lossCause());
      assertEquals(LossCause.FORCED, seen.get().lossCause());
      assertFalse(worker.interruptedAtEnd(), "the interrupt of the loss is left");
    }
  }

  private static void blockWhateverComes(CountDownLatch latch) {
    while (true) {
      try {
        Actor.await(latch);
        return;
      } catch (InterruptedException ignored) {
        // like a call that cannot be interrupted
      }
    }
  }

  @Test
  void workThatReturnsInSpiteOfTheLossGetsTheErrorToo() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks();
        HeldLock lock = locks.lock(name)) {
      LockLostException lost =
          assertThrows(
              LockLostException.class,
              () ->
                  lock.call(
                      () -> {
                        sidecar().force(name);
                        assertThrows(InterruptedException.class, Actor::workUntilInterrupted);
                        return "done";
                      }));
      assertEquals(LossCause.FORCED, lost.lossCause());
      assertThrows(LockLostException.class, () -> lock.run(() -> {}));
    } // close() does not report again what run has reported
  }

  @Test
  void theErrorOfTheWorkWins() throws Exception {
    String name = newName();
    IllegalStateException own = new IllegalStateException("the work's own");
    CountDownLatch started = new CountDownLatch(1);
    try (Locks locks = sidecar().locks()) {
      Actor<Void> worker =
          new Actor<>(
              () -> {
                locks.withLock(
                    name,
                    LockOptions.defaults(),
                    lock -> {
                      started.countDown();
                      assertThrows(InterruptedException.class, Actor::workUntilInterrupted);
                      throw own;
                    });
                return null;
              });
      Actor.await(started);
      sidecar().force(name);
      assertSame(own, worker.failure(IllegalStateException.class));
      assertEquals(1, own.getSuppressed().length);
      LockLostException lost = (LockLostException) own.getSuppressed()[0];
      assertEquals(LossCause.FORCED, lost.lossCause());
    }
  }

  @Test
  void theScopedFormReportsTheLossWhenItIsClosed() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      IllegalStateException own = new IllegalStateException("the block's own");
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () -> {
                try (HeldLock lock = locks.lock(name)) {
                  sidecar().force(name);
                  Eventually.check("the loss is reported", lock::isLost);
                  throw own;
                }
              });
      assertSame(own, thrown);
      assertEquals("LOCK_LOST", ((LockLostException) own.getSuppressed()[0]).reason());

      HeldLock lock = locks.lock(name);
      sidecar().force(name);
      LockLostException lost = assertThrows(LockLostException.class, lock::close);
      assertEquals(LossCause.FORCED, lost.lossCause());
      assertEquals(name, lost.resource());
      assertEquals(lock.token(), lost.token());
    }
  }
}
