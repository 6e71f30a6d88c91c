package io.leasehold.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leasehold.client.Eventually;
import io.leasehold.client.LockOptions;
import io.leasehold.client.Locks;
import io.leasehold.client.OnEachBackend;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * What ShedLock expects of every provider that can extend its locks. Without interrupts, because
 * the test's own thread is the task whose lock expires.
 */
class ProviderTest extends OnEachBackend {
  private static final Duration LONG = Duration.ofMinutes(5);
  private static final Duration TEN = Duration.ofSeconds(10);
  private static final Duration NONE = Duration.ZERO;

  private final String name = newName();
  private Locks locks;
  private LockProvider provider;

  @BeforeEach
  void open() {
    locks = sidecar().locks();
    provider = new LeaseholdLockProvider(locks).withoutInterrupts();
    assertFree(); // connects, which takes a while on a busy machine
  }

  @AfterEach
  void close() {
    locks.close();
  }

  private Optional<SimpleLock> lock(Duration most, Duration least) {
    return provider.lock(new LockConfiguration(ClockProvider.now(), name, most, least));
  }

  private SimpleLock taken(Duration most, Duration least) {
    return lock(most, least).orElseThrow();
  }

  /**
   * A lockAtMostFor this short counts as 1 s. A grant that arrives later is refused, so this tries
   * until one is in time.
   */
  private SimpleLock takenBriefly(Duration most) throws InterruptedException {
    AtomicReference<SimpleLock> taken = new AtomicReference<>();
    Eventually.check(
        "the lock is taken",
        () -> {
          taken.set(taken(most, NONE));
          return true;
        });
    return taken.get();
  }

  private void assertHeld() {
    assertTrue(lock(LONG, NONE).isEmpty(), "the lock is free");
  }

  private void assertFree() {
    taken(LONG, NONE).unlock();
  }

  private void awaitFree() throws InterruptedException {
    Eventually.check(
        "the lock is free",
        () -> {
          Optional<SimpleLock> lock = lock(LONG, NONE);
          lock.ifPresent(SimpleLock::unlock);
          return lock.isPresent();
        });
  }

  @Test
  void aLockIsTakenAndUnlocked() {
    SimpleLock lock = taken(LONG, NONE);
    assertEquals(1, sidecar().inspect(name).getLock().getGrantsCount());
    lock.unlock();
    assertEquals(0, sidecar().inspect(name).getLock().getGrantsCount());
    assertThrows(IllegalStateException.class, lock::unlock);
  }

  @Test
  void aSecondLockIsRefused() {
    SimpleLock lock = taken(LONG, NONE);
    assertHeld();
    lock.unlock();
  }

  @Test
  void aWaitOfTheOptionsIsNotUsed() {
    LockOptions patient = LockOptions.builder().wait(LONG).build();
    SimpleLock lock = taken(LONG, NONE);
    provider = new LeaseholdLockProvider(locks, patient).withoutInterrupts();
    assertHeld();
    lock.unlock();
  }

  @Test
  void twoNamesAreTwoLocks() {
    SimpleLock one = taken(LONG, NONE);
    SimpleLock other =
        provider
            .lock(new LockConfiguration(ClockProvider.now(), name + "-other", LONG, NONE))
            .orElseThrow();
    one.unlock();
    other.unlock();
  }

  @Test
  void anUnlockedLockMayBeTakenAtOnce() {
    for (int round = 0; round < 10; round++) {
      SimpleLock lock = taken(LONG, NONE);
      assertHeld();
      lock.unlock();
    }
  }

  @Test
  void aLockEndsAfterLockAtMostFor() throws InterruptedException {
    SimpleLock lock = takenBriefly(Duration.ofMillis(50));
    awaitFree();
    lock.unlock(); // and reports that in the log only
    SimpleLock zero = takenBriefly(NONE);
    awaitFree();
    zero.unlock();
  }

  @Test
  void aLockIsKeptForLockAtLeastFor() throws InterruptedException {
    Duration least = Duration.ofSeconds(5);
    long since = System.nanoTime();
    taken(LONG, least).unlock();
    assertHeld();
    awaitFree();
    assertTrue(System.nanoTime() - since >= least.toNanos(), "it was free too early");
  }

  @Test
  void aShortRestOfLockAtLeastForIsKeptToo() {
    Duration least = Duration.ofMillis(90);
    for (int round = 0; round < 5; round++) {
      long since = System.nanoTime();
      taken(LONG, least).unlock();
      assertFree();
      assertTrue(System.nanoTime() - since >= least.toNanos(), "it was free too early");
    }
  }

  @Test
  void anExtendedLockOutlivesItsFirstLimit() throws InterruptedException {
    long since = System.nanoTime();
    SimpleLock lock = taken(Duration.ofSeconds(4), NONE);
    SimpleLock extended = lock.extend(LONG, NONE).orElseThrow();
    extended = extended.extend(LONG, NONE).orElseThrow();
    extended = extended.extend(LONG, NONE).orElseThrow();
    Thread.sleep(Duration.ofMillis(4500).minusNanos(System.nanoTime() - since).toMillis());
    assertHeld();
    extended.unlock();
    assertFree();
  }

  @Test
  void anExtensionMayBeShorter() throws InterruptedException {
    SimpleLock extended = taken(LONG, NONE).extend(Duration.ofSeconds(3), NONE).orElseThrow();
    awaitFree();
    extended.unlock();
  }

  @Test
  void anUnlockedLockIsNotExtended() {
    SimpleLock lock = taken(TEN, NONE);
    lock.unlock();
    assertFree();
    assertThrows(IllegalStateException.class, () -> lock.extend(TEN, NONE));
  }

  @Test
  void aLockThatHasEndedIsNotExtended() throws InterruptedException {
    SimpleLock lock = takenBriefly(Duration.ofMillis(2));
    awaitFree();
    assertTrue(lock.extend(TEN, NONE).isEmpty());
    lock.unlock(); // as the executor does; it was not extended
    assertThrows(IllegalStateException.class, lock::unlock);
    assertFree();
  }

  @Test
  void anExtensionHasALockAtLeastForOfItsOwn() {
    SimpleLock lock = taken(TEN, NONE);
    lock.extend(TEN, Duration.ofSeconds(9)).orElseThrow().unlock();
    assertHeld();
  }

  @Test
  void aLostLockIsNotKeptForLockAtLeastFor() throws InterruptedException {
    SimpleLock lock = taken(TEN, TEN);
    sidecar().force(name);
    awaitFree();
    lock.unlock();
    assertFree();
  }

  @Test
  void aChangeOfTheTimeOfDayDoesNotChangeLockAtLeastFor() throws InterruptedException {
    LockConfiguration ahead =
        new LockConfiguration(
            ClockProvider.now().plus(Duration.ofHours(1)), name, LONG, Duration.ofSeconds(3));
    provider.lock(ahead).orElseThrow().unlock();
    assertHeld();
    awaitFree();
  }

  @Test
  void anExtendedLockIsReplaced() {
    SimpleLock lock = taken(TEN, NONE);
    SimpleLock extended = lock.extend(TEN, NONE).orElseThrow();
    assertThrows(IllegalStateException.class, () -> lock.extend(TEN, NONE));
    assertThrows(IllegalStateException.class, lock::unlock);
    extended.unlock();
  }

  @Test
  void aSidecarThatRefusesIsAnError() {
    try (Locks elsewhere = Locks.builder("no such store").address(sidecar().address()).build()) {
      LockProvider broken = new LeaseholdLockProvider(elsewhere);
      LockConfiguration configuration =
          new LockConfiguration(ClockProvider.now(), name, LONG, NONE);
      assertThrows(LockException.class, () -> broken.lock(configuration));
    }
    assertFalse(LeaseholdLockProvider.currentLock().isPresent());
  }
}
