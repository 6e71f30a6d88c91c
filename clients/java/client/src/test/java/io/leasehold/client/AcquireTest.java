package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class AcquireTest extends OnEachBackend {
  @Test
  void aLockIsTakenAndReleased() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      long first;
      try (HeldLock lock = locks.lock(name, Duration.ofSeconds(30))) {
        first = lock.token();
        assertTrue(first > 0);
        assertEquals(name, lock.resource());
        assertFalse(lock.lockId().isEmpty());
        assertEquals(lock.grantId(), sidecar().inspect(name).getLock().getGrants(0).getGrantId());
        assertTrue(lock.validFor().compareTo(Duration.ZERO) > 0);
        assertTrue(lock.validFor().compareTo(Duration.ofSeconds(30)) < 0);
        assertFalse(lock.isLost());
        lock.check();
        lock.run(lock::check);
        assertEquals("done", lock.call(() -> "done"));
      }
      try (HeldLock lock = locks.tryLock(name).orElseThrow()) {
        assertTrue(lock.token() > first);
      }
      assertEquals("result", locks.callWithLock(name, LockOptions.defaults(), lock -> "result"));
      assertTrue(locks.tryWithLock(name, LockOptions.defaults(), HeldLock::check));
    }
  }

  @Test
  void aTryOfAHeldLockGivesNothing() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks();
        HeldLock lock = locks.lock(name)) {
      assertTrue(locks.tryLock(name).isEmpty());
      assertFalse(
          locks.tryWithLock(
              name,
              LockOptions.defaults(),
              other -> {
                throw new AssertionError(lock + " is held twice");
              }));
    }
  }

  @Test
  void aLockWaitsForItsTurn() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      HeldLock first = locks.lock(name);
      Actor<Long> second =
          new Actor<>(
              () -> {
                try (HeldLock lock = locks.lock(name)) {
                  return lock.token();
                }
              });
      sidecar().awaitWaiters(name, 1);
      assertFalse(second.isDone());
      first.close();
      assertTrue(second.result() > first.token());
    }
  }

  @Test
  void aWaitEndsAtItsLimit() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks();
        HeldLock lock = locks.lock(name)) {
      NotAcquiredException error =
          assertThrows(NotAcquiredException.class, () -> locks.lock(name, Duration.ofSeconds(1)));
      assertEquals("WAIT_DEADLINE", error.reason());
      String message = "the lock \"" + name + "\" was not acquired within 1 s";
      assertTrue(error.getMessage().startsWith(message), error.getMessage());
      lock.check();
    }
  }

  @Test
  void aTryThatMayNotWaitNamesTheHolder() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks();
        HeldLock lock = locks.lock(name, LockOptions.builder().label("invoice run").build())) {
      NotAcquiredException error =
          assertThrows(NotAcquiredException.class, () -> locks.lock(name, Duration.ZERO));
      assertEquals("RESOURCE_LOCKED", error.reason());
      String holder = error.holder().orElseThrow();
      assertTrue(holder.startsWith("app/") && holder.endsWith("/invoice run"), holder);
      assertEquals("the lock \"" + name + "\" is held by " + holder, error.getMessage());
      lock.check();
    }
  }

  @Test
  void theLabelIsSeenByInspection() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks();
        HeldLock lock = locks.lock(name, LockOptions.builder().label("nightly").build())) {
      String holder = sidecar().inspect(name).getLock().getGrants(0).getHolder();
      assertTrue(holder.endsWith("/nightly"), holder);
      lock.check();
    }
  }

  @Test
  void namespacesAreApart() throws Exception {
    String name = newName();
    LockOptions inner = LockOptions.builder().namespace("shop", "eu").build();
    try (Locks locks = sidecar().locks();
        HeldLock outside = locks.lock(name);
        HeldLock inside = locks.tryLock(name, inner).orElseThrow()) {
      assertNotEquals(outside.lockId(), inside.lockId());
      assertTrue(locks.tryLock(name, inner).isEmpty());
      outside.check();
      inside.check();
    }
  }

  @Test
  void readersShareALock() throws Exception {
    String name = newName();
    LockOptions shared = LockOptions.builder().mode(LockMode.SHARED).build();
    try (Locks locks = sidecar().locks();
        HeldLock one = locks.lock(name, shared);
        HeldLock two = locks.tryLock(name, shared).orElseThrow()) {
      assertTrue(locks.tryLock(name).isEmpty());
      one.check();
      two.check();
    }
  }

  @Test
  void aRepeatedRequestIdFindsItsGrant() throws Exception {
    String name = newName();
    LockOptions options = LockOptions.builder().requestId("secret of " + name).build();
    try (Locks locks = sidecar().locks()) {
      HeldLock first = locks.lock(name, options);
      try (HeldLock second = locks.lock(name, options)) {
        assertEquals(first.token(), second.token());
        Eventually.check("the first handle has lost it", first::isLost);
        LockLostException lost = assertThrows(LockLostException.class, first::close);
        assertEquals(LossCause.ENDED, lost.lossCause());
        second.check();
        assertTrue(locks.tryLock(name).isEmpty());
      }
    }
  }

  @Test
  void aBadOptionIsNamed() throws Exception {
    Duration none = Duration.ZERO;
    Duration negative = Duration.ofNanos(-1);
    Map<String, LockOptions.Builder> wrong =
        Map.of(
            "ttl", LockOptions.builder().ttl(none),
            "maxHold", LockOptions.builder().maxHold(none),
            "wait", LockOptions.builder().wait(negative),
            "stopBefore", LockOptions.builder().stopBefore(negative),
            "label", LockOptions.builder().label("l".repeat(129)),
            "requestId", LockOptions.builder().requestId("half\ud800"),
            "namespace", LockOptions.builder().namespace(""));
    try (Locks locks = sidecar().locks()) {
      wrong.forEach(
          (option, builder) -> {
            LeaseholdException error =
                assertThrows(
                    LeaseholdException.class, () -> locks.lock(newName(), builder.build()));
            assertEquals("INVALID_REQUEST", error.reason());
            // The client begins with the name; label and namespace are checked by the sidecar.
            assertTrue(
                Set.of("label", "namespace").contains(option)
                    ? error.getMessage().contains(option)
                    : error.getMessage().startsWith(option + " "),
                error.getMessage());
          });
      LockOptions patient = LockOptions.builder().wait(Duration.ofSeconds(1)).build();
      LeaseholdException wait =
          assertThrows(LeaseholdException.class, () -> locks.tryLock(newName(), patient));
      assertEquals("INVALID_REQUEST", wait.reason());
      assertTrue(wait.getMessage().startsWith("wait "), wait.getMessage());
      for (String name : new String[] {"", null, "half\udfff of a pair"}) {
        LeaseholdException error = assertThrows(LeaseholdException.class, () -> locks.lock(name));
        assertEquals("INVALID_REQUEST", error.reason());
        assertTrue(error.getMessage().startsWith("name "), error.getMessage());
        error = assertThrows(LeaseholdException.class, () -> Locks.of(name));
        assertEquals("INVALID_REQUEST", error.reason());
        assertTrue(error.getMessage().startsWith("store "), error.getMessage());
      }
    }
  }

  @Test
  void aStopBeforeThatLeavesNoTimeIsNamed() throws Exception {
    String name = newName();
    Duration two = Duration.ofSeconds(2);
    Duration ttl = Duration.ofMinutes(2);
    LockOptions late = LockOptions.builder().ttl(ttl).stopBefore(ttl.minusMillis(6020)).build();
    LockOptions held = LockOptions.builder().maxHold(two).stopBefore(two).build();
    try (Locks locks = sidecar().locks()) {
      LeaseholdException error =
          assertThrows(LeaseholdException.class, () -> locks.lock(name, late));
      assertEquals("INVALID_REQUEST", error.reason());
      assertEquals("stopBefore is not shorter than the granted TTL of 120 s", error.getMessage());
      locks.lock(name, Duration.ofSeconds(30)).close(); // it was released
      error = assertThrows(LeaseholdException.class, () -> locks.lock(name, held));
      assertEquals("INVALID_REQUEST", error.reason());
      assertEquals("stopBefore is not shorter than maxHold, which is 2 s", error.getMessage());
    }
  }

  @Test
  void aCancelledWaitLeavesNothing() throws Exception {
    String name = newName();
    try (Locks locks = sidecar().locks()) {
      HeldLock holder = locks.lock(name);
      Actor<HeldLock> cancelled = new Actor<>(() -> locks.lock(name));
      sidecar().awaitWaiters(name, 1);
      Actor<HeldLock> next = new Actor<>(() -> locks.lock(name));
      sidecar().awaitWaiters(name, 2);
      cancelled.interrupt();
      cancelled.failure(InterruptedException.class);
      sidecar().awaitWaiters(name, 1);
      holder.close();
      next.result().close();
      assertEquals(0, sidecar().inspect(name).getLock().getGrantsCount());
    }
  }

  @Test
  void aStoreThatIsNotThereIsTheSidecarsError() throws Exception {
    try (Locks locks = Locks.builder("elsewhere").address(sidecar().address()).build()) {
      LeaseholdException error =
          assertThrows(LeaseholdException.class, () -> locks.lock(newName()));
      assertEquals("STORE_NOT_FOUND", error.reason());
    }
  }
}
