package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;

class InterruptTest extends OnEachBackend {
  @Test
  void anInterruptBySomebodyElseIsTheWorksOwn() throws Exception {
    String name = newName();
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
                      Actor.workUntilInterrupted();
                    });
                return null;
              });
      Actor.await(started);
      worker.interrupt();
      assertEquals(0, worker.failure(InterruptedException.class).getSuppressed().length);
      locks.lock(name).close();
    }
  }

  @Test
  void theLossOfTwoNestedLocksLeavesNoInterrupt() throws Exception {
    var channel = Endpoint.parse("address", "127.0.0.1:1").open("address");
    Sidecar none = new Sidecar(channel, SidecarAddress.ofChannel(), () -> {});
    var request = Requests.lock("store", "name", LockOptions.defaults());
    var outer = InterruptOnLoss.open(new LockSession(none, request, LockOptions.defaults()));
    var inner = InterruptOnLoss.open(new LockSession(none, request, LockOptions.defaults()));
    outer.interrupt();
    // The work ends by it before the other loss has arrived.
    InterruptedException ended = assertThrows(InterruptedException.class, () -> Thread.sleep(1000));
    inner.interrupt();
    inner.close(ended);
    outer.close(ended);
    assertFalse(Thread.interrupted());
    channel.shutdownNow();
  }

  @Test
  void anInterruptBySomebodyElseStaysSetAfterALoss() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      Actor<Void> before =
          new Actor<>(
              () -> {
                locks.withLock(
                    name,
                    LockOptions.defaults(),
                    lock -> {
                      Thread.currentThread().interrupt(); // as somebody else would
                      forceAndSpin(name, lock);
                    });
                return null;
              });
      before.failure(LockLostException.class);
      assertTrue(before.interruptedAtEnd());

      Actor<Void> after =
          new Actor<>(
              () -> {
                locks.withLock(
                    name,
                    LockOptions.defaults(),
                    lock -> {
                      forceAndSpin(name, lock);
                      try {
                        Actor.workUntilInterrupted();
                      } finally {
                        Thread.currentThread().interrupt(); // as somebody else would
                      }
                    });
                return null;
              });
      after.failure(LockLostException.class);
      assertTrue(after.interruptedAtEnd());
    }
  }

  private void forceAndSpin(String name, HeldLock lock) {
    // By another thread, because to wait for the answer would take the flag away for a while.
    new Thread(() -> sidecar().force(name)).start();
    while (!lock.isLost()) {
      Thread.onSpinWait();
    }
  }

  @Test
  void anInterruptThatTheWorkDoesNotNoticeIsCleared() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      Actor<Void> worker =
          new Actor<>(
              () -> {
                locks.withLock(name, LockOptions.defaults(), lock -> forceAndSpin(name, lock));
                return null;
              });
      worker.failure(LockLostException.class);
      assertFalse(worker.interruptedAtEnd());
    }
  }

  @Test
  void theLossOfAnInnerLockLeavesTheOuterWorkAlone() throws Exception {
    String outerName = newName();
    String innerName = newName();
    try (Locks locks = sidecar().locks()) {
      Actor<Boolean> worker =
          new Actor<>(
              () ->
                  locks.callWithLock(
                      outerName,
                      LockOptions.defaults(),
                      outer -> {
                        assertThrows(
                            LockLostException.class,
                            () ->
                                locks.withLock(
                                    innerName,
                                    LockOptions.defaults(),
                                    inner -> forceAndSpin(innerName, inner)));
                        outer.check();
                        return Thread.currentThread().isInterrupted();
                      }));
      assertFalse(worker.result());
    }
  }

  @Test
  void theLossOfBothLocksInterruptsTheOuterWorkToo() throws Exception {
    String outerName = newName();
    String innerName = newName();
    try (Locks locks = sidecar().locks()) {
      Actor<Void> worker =
          new Actor<>(
              () -> {
                locks.withLock(
                    outerName,
                    LockOptions.defaults(),
                    outer -> {
                      assertThrows(
                          LockLostException.class,
                          () ->
                              locks.withLock(
                                  innerName,
                                  LockOptions.defaults(),
                                  inner -> {
                                    forceAndSpin(innerName, inner);
                                    forceAndSpin(outerName, outer);
                                  }));
                      Actor.workUntilInterrupted();
                    });
                return null;
              });
      assertEquals(outerName, worker.failure(LockLostException.class).resource());
      assertFalse(worker.interruptedAtEnd());
    }
  }

  @Test
  void anErrorOfCheckInTheWorkIsTheLoss() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      Actor<Void> worker =
          new Actor<>(
              () -> {
                locks.withLock(
                    name,
                    LockOptions.defaults(),
                    lock -> {
                      forceAndSpin(name, lock);
                      try {
                        lock.check();
                      } catch (LockLostException lost) {
                        throw new IllegalStateException("as a framework wraps it", lost);
                      }
                    });
                return null;
              });
      LockLostException lost = worker.failure(LockLostException.class);
      assertEquals("as a framework wraps it", lost.getSuppressed()[0].getMessage());
    }
  }
}
