package io.leasehold.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.leasehold.client.HeldLock;
import io.leasehold.client.LockOptions;
import io.leasehold.client.Locks;
import io.leasehold.client.OnEachBackend;
import io.leasehold.client.TestSidecar;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockExtender;
import net.javacrumbs.shedlock.core.LockExtender.LockCanNotBeExtendedException;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tasks as ShedLock runs them. */
class TaskTest extends OnEachBackend {
  private static final Duration LONG = Duration.ofMinutes(5);

  private final String name = newName();
  private Locks locks;
  private LockingTaskExecutor executor;

  @BeforeEach
  void open() {
    locks = sidecar().locks();
    executor = new DefaultLockingTaskExecutor(new LeaseholdLockProvider(locks));
  }

  @AfterEach
  void close() {
    locks.close();
  }

  private static LockConfiguration configuration(String name, Duration most) {
    return new LockConfiguration(ClockProvider.now(), name, most, Duration.ZERO);
  }

  private static void work() throws InterruptedException {
    Thread.sleep(40_000);
    throw new AssertionError("the task was not interrupted");
  }

  @Test
  void aTaskHasItsTokenAndIsRenewed() throws Throwable {
    LockOptions brief = LockOptions.builder().ttl(Duration.ofSeconds(8)).label("nightly").build();
    LockingTaskExecutor renewed =
        new DefaultLockingTaskExecutor(new LeaseholdLockProvider(locks, brief));
    renewed.executeWithLock(
        (LockingTaskExecutor.Task)
            () -> {
              HeldLock lock = LeaseholdLockProvider.currentLock().orElseThrow();
              assertEquals(name, lock.resource());
              assertTrue(lock.token() > 0);
              Thread.sleep(9000);
              lock.check();
              assertTrue(locks.tryLock(name).isEmpty());
              String holder = sidecar().inspect(name).getLock().getGrants(0).getHolder();
              assertTrue(holder.endsWith("/nightly"), holder);
            },
        configuration(name, LONG));
    assertTrue(LeaseholdLockProvider.currentLock().isEmpty());
  }

  @Test
  void aTaskWhoseLockIsForcedIsInterrupted() {
    assertThrows(
        InterruptedException.class,
        () ->
            executor.executeWithLock(
                (LockingTaskExecutor.Task)
                    () -> {
                      sidecar().force(name);
                      work();
                    },
                configuration(name, LONG)));
    assertFalse(Thread.interrupted(), "the interrupt of the loss is left");
    assertTrue(LeaseholdLockProvider.currentLock().isEmpty());
  }

  @Test
  void aTaskThatTakesLongerThanLockAtMostForIsInterrupted() {
    assertThrows(
        InterruptedException.class,
        () ->
            executor.executeWithLock(
                (LockingTaskExecutor.Task) TaskTest::work,
                configuration(name, Duration.ofSeconds(3))));
    assertFalse(Thread.interrupted(), "the interrupt of the loss is left");
  }

  @Test
  void aTaskWhoseSidecarDiesIsInterruptedAndItsErrorIsReported() {
    IllegalStateException own = new IllegalStateException("the task's own");
    try (TestSidecar mortal = TestSidecar.start(backend);
        Locks dying = mortal.locks()) {
      LockingTaskExecutor there = new DefaultLockingTaskExecutor(new LeaseholdLockProvider(dying));
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () ->
                  there.executeWithLock(
                      (LockingTaskExecutor.Task)
                          () -> {
                            mortal.command("kill");
                            assertThrows(InterruptedException.class, TaskTest::work);
                            throw own;
                          },
                      configuration(name, LONG)));
      assertSame(own, thrown);
    }
  }

  @Test
  void aTaskExtendsItsLock() throws Throwable {
    executor.executeWithLock(
        (LockingTaskExecutor.Task)
            () -> {
              LockExtender.extendActiveLock(LONG, Duration.ZERO);
              Thread.sleep(5000);
              LeaseholdLockProvider.currentLock().orElseThrow().check();
            },
        configuration(name, Duration.ofSeconds(4)));
    locks.tryLock(name).orElseThrow().close();
  }

  @Test
  void aTaskWhoseLockIsLostCannotExtendIt() {
    IllegalArgumentException own = new IllegalArgumentException("the task's own");
    IllegalArgumentException thrown =
        assertThrows(
            IllegalArgumentException.class,
            () ->
                executor.executeWithLock(
                    (LockingTaskExecutor.Task)
                        () -> {
                          sidecar().force(name);
                          assertThrows(InterruptedException.class, TaskTest::work);
                          assertThrows(
                              LockCanNotBeExtendedException.class,
                              () -> LockExtender.extendActiveLock(LONG, Duration.ZERO));
                          throw own;
                        },
                    configuration(name, LONG)));
    assertSame(own, thrown, "the executor's unlock has thrown");
    assertFalse(Thread.interrupted(), "the interrupt of the loss is left");
    assertTrue(LeaseholdLockProvider.currentLock().isEmpty());
  }

  /** KeepAliveLockProvider extends on a thread of its own. */
  @Test
  void aLostLockThatAnotherThreadCouldNotExtendLeavesNoInterrupt() throws Exception {
    LockProvider provider = new LeaseholdLockProvider(locks);
    SimpleLock lock = provider.lock(configuration(name, LONG)).orElseThrow();
    sidecar().force(name);
    assertThrows(InterruptedException.class, TaskTest::work);
    Thread other = new Thread(() -> assertTrue(lock.extend(LONG, Duration.ZERO).isEmpty()));
    other.start();
    other.join();
    assertTrue(LeaseholdLockProvider.currentLock().isPresent(), "the task has not ended");
    lock.unlock();
    assertFalse(Thread.interrupted(), "the interrupt of the loss is left");
    assertTrue(LeaseholdLockProvider.currentLock().isEmpty());
  }

  /** Counters without a lock of their own, which many threads raise under two locks. */
  @Test
  void noTwoTasksRunAtOnce() throws Exception {
    int threads = 8;
    int rounds = 25;
    int[] counters = new int[2];
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try {
      List<Future<?>> all = new ArrayList<>();
      for (int thread = 0; thread < threads; thread++) {
        int mine = thread % 2;
        all.add(pool.submit(() -> raise(counters, mine, rounds)));
      }
      for (Future<?> one : all) {
        one.get(100, TimeUnit.SECONDS);
      }
    } finally {
      pool.shutdownNow();
    }
    assertEquals(rounds * threads / 2, counters[0]);
    assertEquals(rounds * threads / 2, counters[1]);
  }

  private void raise(int[] counters, int mine, int rounds) {
    for (int[] done = {0}; done[0] < rounds; ) {
      executor.executeWithLock(
          (Runnable)
              () -> {
                int before = counters[mine];
                Thread.yield();
                counters[mine] = before + 1;
                done[0]++;
              },
          new LockConfiguration(
              ClockProvider.now(), name + "-" + mine, LONG, Duration.ofMillis(5)));
    }
  }
}
