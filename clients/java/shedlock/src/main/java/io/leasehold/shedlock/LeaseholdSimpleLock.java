package io.leasehold.shedlock;

import io.leasehold.client.HeldLock;
import io.leasehold.client.InterruptOnLoss;
import io.leasehold.client.LeaseholdException;
import io.leasehold.client.LockLostException;
import java.time.Duration;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A lock of a task; an extension is another one of these on the same {@link Hold}. It is not one of
 * ShedLock's {@code AbstractSimpleLock}s, because those cannot be unlocked after an extension that
 * failed: the executor's unlock would then throw in place of the task's own error.
 */
final class LeaseholdSimpleLock implements SimpleLock {
  private static final Logger LOG = LoggerFactory.getLogger(LeaseholdLockProvider.class);

  /** The shortest TTL of a store. */
  private static final Duration SHORTEST_TTL = Duration.ofMillis(100);

  /** Null on a thread without a lock, so that threads of pools keep nothing. */
  private static final ThreadLocal<Deque<HeldLock>> CURRENT = new ThreadLocal<>();

  /**
   * What extensions share.
   *
   * @param lock the lock
   * @param thread that took it
   * @param current the locks of that thread, the last one first
   * @param interrupt interrupts that thread at a loss; or null
   */
  private record Hold(
      HeldLock lock, Thread thread, Deque<HeldLock> current, InterruptOnLoss interrupt) {
    void close() {
      current.remove(lock);
      if (Thread.currentThread() == thread && current.isEmpty()) {
        CURRENT.remove();
      }
      if (interrupt != null) {
        interrupt.close();
      }
    }
  }

  private final Hold hold;

  /** By the monotonic clock, so that a change of the time of day changes no lock. */
  private final long since;

  private final Duration least;
  private boolean valid = true;

  private LeaseholdSimpleLock(Hold hold, long since, Duration least) {
    this.hold = hold;
    this.since = since;
    this.least = least;
  }

  static SimpleLock taken(HeldLock lock, long since, Duration least, boolean interrupts) {
    Deque<HeldLock> current = CURRENT.get();
    if (current == null) {
      current = new ConcurrentLinkedDeque<>(); // another thread may unlock
      CURRENT.set(current);
    }
    current.push(lock);
    InterruptOnLoss interrupt = interrupts ? lock.interruptOnLoss() : null;
    return new LeaseholdSimpleLock(
        new Hold(lock, Thread.currentThread(), current, interrupt), since, least);
  }

  static Optional<HeldLock> current() {
    return Optional.ofNullable(CURRENT.get()).map(Deque::peek);
  }

  @Override
  public synchronized Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
    checkValid();
    long now = System.nanoTime();
    // Made for its checks alone.
    new LockConfiguration(
        ClockProvider.now(), hold.lock().resource(), lockAtMostFor, lockAtLeastFor);
    try {
      hold.lock().limit(LeaseholdLockProvider.atMost(lockAtMostFor));
    } catch (LockLostException lost) {
      if (Thread.currentThread() == hold.thread()) {
        release(); // callers need not unlock after this, but may
      }
      return Optional.empty();
    } catch (LeaseholdException error) {
      throw new LockException("could not extend " + hold.lock().resource(), error);
    }
    valid = false;
    return Optional.of(new LeaseholdSimpleLock(hold, now, lockAtLeastFor));
  }

  @Override
  public synchronized void unlock() {
    checkValid();
    valid = false;
    release();
  }

  private void checkValid() {
    if (!valid) {
      throw new IllegalStateException(
          "the lock " + hold.lock().resource() + " has been unlocked or extended");
    }
  }

  /** What is left of lockAtLeastFor; 0 if the lock is not held. */
  private Duration rest() {
    Duration rest = least.minusNanos(System.nanoTime() - since);
    return rest.isNegative() || hold.lock().validFor().isZero() ? Duration.ZERO : rest;
  }

  /** Throws nothing, because it would take the place of what the task has thrown. */
  private void release() {
    HeldLock lock = hold.lock();
    try {
      Duration rest = rest();
      if (rest.compareTo(SHORTEST_TTL) >= 0) {
        lock.detach(rest);
      } else {
        waitForTheRest();
        lock.unlock();
      }
    } catch (LockLostException lost) {
      LOG.warn("The lock of a task was lost before it was unlocked: {}", lost.getMessage());
    } catch (LeaseholdException error) {
      LOG.warn("The lock {} was not kept for its lockAtLeastFor", lock.resource(), error);
    } finally {
      hold.close();
    }
  }

  private void waitForTheRest() {
    boolean interrupted = false;
    for (Duration rest = rest(); !rest.isZero(); rest = rest()) {
      try {
        TimeUnit.NANOSECONDS.sleep(rest.toNanos());
      } catch (InterruptedException again) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
