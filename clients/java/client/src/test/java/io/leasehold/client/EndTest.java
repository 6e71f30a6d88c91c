package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class EndTest extends OnEachBackend {
  @Test
  void anUnlockIsIdempotent() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      HeldLock first = locks.lock(name);
      first.unlock();
      try (HeldLock second = locks.tryLock(name).orElseThrow()) {
        first.unlock();
        first.close();
        second.check();
        assertTrue(locks.tryLock(name).isEmpty());
      }
      assertEquals(Duration.ZERO, first.validFor());
      assertFalse(first.isLost());
      assertThrows(LockLostException.class, first::check);
    }
  }

  @Test
  void aLockMayBeEndedByItsWork() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      locks.withLock(
          name,
          LockOptions.defaults(),
          lock -> {
            lock.unlock();
            assertEquals(Duration.ZERO, lock.validFor());
            LockLostException ended = assertThrows(LockLostException.class, lock::check);
            assertEquals(LossCause.ENDED, ended.lossCause());
            locks.tryLock(name).orElseThrow().close();
            assertFalse(lock.isLost());
            assertFalse(Thread.currentThread().isInterrupted());
          });
    }
  }

  @Test
  void anUnlockIsNotCancelledWithItsCaller() throws Exception {
    String name = newName();
    CallLog log = new CallLog();
    ManagedChannel channel =
        ManagedChannelBuilder.forTarget(sidecar().address()).usePlaintext().intercept(log).build();
    CountDownLatch started = new CountDownLatch(1);
    try (Locks locks = Locks.builder(TestSidecar.STORE).channel(channel).build()) {
      Actor<Void> worker =
          new Actor<>(
              () -> {
                locks.withLock(
                    name,
                    LockOptions.defaults(),
                    lock -> {
                      started.countDown();
                      try {
                        Actor.workUntilInterrupted();
                      } finally {
                        Thread.currentThread().interrupt(); // and it goes on being cancelled
                      }
                    });
                return null;
              });
      Actor.await(started);
      worker.interrupt();
      worker.failure(InterruptedException.class);
      assertTrue(worker.interruptedAtEnd(), "the interrupt of the caller was swallowed");
      assertEquals("OK", log.outcome("Unlock"));
      locks.tryLock(name).orElseThrow().close();
    } finally {
      channel.shutdownNow();
    }
  }

  @Test
  void theContextOfTheCallerEndsNothing() throws Exception {
    String name = newName();
    CallLog log = new CallLog();
    ManagedChannel channel =
        ManagedChannelBuilder.forTarget(sidecar().address()).usePlaintext().intercept(log).build();
    ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
    try (Locks locks = Locks.builder(TestSidecar.STORE).channel(channel).build();
        Context.CancellableContext context =
            Context.current().withDeadlineAfter(10, TimeUnit.SECONDS, timer)) {
      HeldLock lock = context.call(() -> locks.lock(name));
      context.cancel(null);
      lock.check();
      assertTrue(locks.tryLock(name).isEmpty());
      context.run(lock::close);
      assertEquals("OK", log.outcome("Unlock"));
    } finally {
      timer.shutdownNow();
      channel.shutdownNow();
    }
  }

  @Test
  void aFailedUnlockDoesNotHideTheErrorOfTheWork() throws Exception {
    IllegalStateException own = new IllegalStateException("the work's own");
    try (TestSidecar sidecar = TestSidecar.start(backend);
        Locks locks = sidecar.locks()) {
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () ->
                  locks.withLock(
                      newName(),
                      LockOptions.defaults(),
                      lock -> {
                        sidecar.command("suspend");
                        throw own;
                      }));
      assertSame(own, thrown);
      assertEquals(0, own.getSuppressed().length);
      sidecar.command("resume");
    }
  }

  @Test
  void aKilledProcessFreesTheLock() throws Exception {
    String name = newName();
    LockOptions patient = LockOptions.builder().wait(Duration.ofSeconds(10)).build();
    Process child = Child.start(name, "120", java.util.Map.of(), sidecar().address());
    try (Locks locks = sidecar().locks()) {
      long token = Child.token(child);
      Actor<Long> next = new Actor<>(() -> locks.callWithLock(name, patient, HeldLock::token));
      sidecar().awaitWaiters(name, 1);
      child.destroyForcibly();
      // The child's TTL is 120 s, the wait 10 s.
      assertTrue(next.result() > token);
    } finally {
      child.destroyForcibly();
    }
  }

  @Test
  void aClosedClientReleasesItsLocks() throws Exception {
    String name = newName();
    Locks closed = sidecar().locks();
    HeldLock lock = closed.lock(name);
    Actor<HeldLock> waiter = new Actor<>(() -> closed.lock(name));
    sidecar().awaitWaiters(name, 1);
    closed.close();
    assertEquals("CANCELLED", waiter.failure(LeaseholdException.class).reason());
    assertTrue(lock.isLost());
    try (Locks locks = sidecar().locks()) {
      locks.lock(name, Duration.ofSeconds(20)).close();
    }
  }

  @Test
  void aDetachedLockOutlivesItsClient() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      try (Locks closed = sidecar().locks()) {
        HeldLock lock = closed.lock(name);
        lock.detach(Duration.ofSeconds(6));
        lock.close();
        assertThrows(LockLostException.class, lock::check);
      }
      assertTrue(locks.tryLock(name).isEmpty());
      locks.lock(name, Duration.ofSeconds(20)).close();
    }
  }

  @Test
  void aNewLimitReplacesTheOneBefore() throws Exception {
    String name = newName();
    LockOptions options = LockOptions.builder().maxHold(Duration.ofSeconds(4)).build();
    try (Locks locks = sidecar().locks()) {
      locks.withLock(
          name,
          options,
          lock -> {
            lock.limit(Duration.ofSeconds(90));
            Thread.sleep(5000);
            lock.check();
            assertTrue(locks.tryLock(name).isEmpty());
          });
      LockLostException lost =
          assertThrows(
              LockLostException.class,
              () ->
                  locks.withLock(
                      name,
                      LockOptions.defaults(),
                      lock -> {
                        lock.limit(Duration.ofMillis(300));
                        Actor.workUntilInterrupted();
                      }));
      assertEquals(LossCause.MAX_HOLD, lost.lossCause());
    }
  }
}
