package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

class ReentrancyTest extends OnEachBackend {
  private static final LockOptions AGAIN = LockOptions.builder().reentrant(true).build();
  private static final Duration SOON = Duration.ofSeconds(1);

  @Test
  void aReentrantLockCounts() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      HeldLock outer = locks.lock(name, AGAIN);
      HeldLock inner = locks.lock(name, AGAIN);
      HeldLock tried = locks.tryLock(name, AGAIN).orElseThrow();
      assertEquals(outer.token(), inner.token());
      assertEquals(outer.lockId(), tried.lockId());
      inner.close();
      inner.close(); // counts once
      tried.close();
      outer.check();
      assertTrue(locks.tryLock(name).isEmpty());

      LeaseholdException mode =
          assertThrows(
              LeaseholdException.class,
              () -> locks.lock(name, AGAIN.toBuilder().mode(LockMode.SHARED).build()));
      assertTrue(mode.getMessage().contains("mode"), mode.getMessage());
      Actor<Boolean> other = new Actor<>(() -> locks.tryLock(name, AGAIN).isEmpty());
      assertTrue(other.result(), "another thread is not the owner");

      outer.close();
      try (HeldLock next = locks.tryLock(name, AGAIN).orElseThrow()) {
        assertTrue(next.token() > outer.token());
      }
    }
  }

  @Test
  void twoClientsAreNeverTheSameOwner() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks();
        Locks others = sidecar().locks();
        HeldLock lock = locks.lock(name, AGAIN)) {
      assertTrue(others.tryLock(name, AGAIN).isEmpty());
      lock.check();
    }
  }

  @Test
  void theLastEndReleasesTheLockInAnyOrder() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      HeldLock outer = locks.lock(name, AGAIN);
      HeldLock inner = locks.lock(name, AGAIN);
      outer.close();
      assertEquals(Duration.ZERO, outer.validFor());
      assertEquals(
          LossCause.ENDED, assertThrows(LockLostException.class, outer::check).lossCause());
      inner.check();
      assertTrue(locks.tryLock(name).isEmpty());
      inner.close();
      locks.tryLock(name).orElseThrow().close();
    }
  }

  @Test
  void aLostLockIsNotTakenAgain() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      HeldLock outer = locks.lock(name, AGAIN);
      sidecar().force(name);
      Eventually.check("the loss is seen", outer::isLost);
      LockLostException lost = assertThrows(LockLostException.class, () -> locks.lock(name, AGAIN));
      assertEquals(LossCause.FORCED, lost.lossCause());
      assertThrows(LockLostException.class, outer::close);
      locks.lock(name, AGAIN).close();
    }
  }

  @Test
  void aDetachedLockIsNotTakenAgain() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      HeldLock outer = locks.lock(name, AGAIN);
      HeldLock inner = locks.lock(name, AGAIN);
      inner.detach(Duration.ofSeconds(3));
      assertThrows(LockLostException.class, outer::check);
      assertTrue(locks.tryLock(name, AGAIN).isEmpty());
      outer.close();
      try (HeldLock next = locks.lock(name, AGAIN)) {
        assertTrue(next.token() > outer.token());
      }
    }
  }

  @Test
  void theLossOfAReentrantLockCancelsTheInnerWork() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      LockLostException lost =
          assertThrows(
              LockLostException.class,
              () ->
                  locks.withLock(
                      name,
                      AGAIN,
                      outer ->
                          locks.withLock(
                              name,
                              AGAIN,
                              inner -> {
                                sidecar().force(name);
                                Actor.workUntilInterrupted();
                              })));
      assertEquals(LossCause.FORCED, lost.lossCause());
      assertTrue(!Thread.interrupted(), "the interrupt of the loss is left");
      locks.lock(name, AGAIN).close();
    }
  }

  @Test
  void aLockIsNotReentrantByDefault() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks();
        HeldLock outer = locks.lock(name, AGAIN)) {
      LockOptions once = LockOptions.builder().wait(SOON).build();
      assertThrows(NotAcquiredException.class, () -> locks.lock(name, once));
      outer.check();
    }
    String plain = newName();
    try (Locks locks = sidecar().locks();
        HeldLock outer = locks.lock(plain)) {
      LockOptions again = AGAIN.toBuilder().wait(SOON).build();
      assertThrows(NotAcquiredException.class, () -> locks.lock(plain, again));
      outer.check();
    }
  }
}
