package io.leasehold.shedlock;

import io.leasehold.client.HeldLock;
import io.leasehold.client.InterruptOnLoss;
import io.leasehold.client.LeaseholdException;
import io.leasehold.client.LockLostException;
import java.time.Duration;
import java.time.Instant;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A lock of a task, and what it has become by extensions. */
final class LeaseholdSimpleLock extends AbstractSimpleLock {
  private static final Logger LOG = LoggerFactory.getLogger(LeaseholdLockProvider.class);

  /** The shortest TTL of a store. */
  private static final Duration SHORTEST_TTL = Duration.ofMillis(100);

  private static final ThreadLocal<Deque<HeldLock>> CURRENT =
      ThreadLocal.withInitial(ConcurrentLinkedDeque::new);

  private final HeldLock held;

  /** The locks of the thread that took it. */
  private final Deque<HeldLock> current;

  private final InterruptOnLoss interrupt;

  private LeaseholdSimpleLock(
      LockConfiguration configuration,
      HeldLock held,
      Deque<HeldLock> current,
      InterruptOnLoss interrupt) {
    super(configuration);
    this.held = held;
    this.current = current;
    this.interrupt = interrupt;
  }

  static SimpleLock taken(LockConfiguration configuration, HeldLock held, boolean interrupts) {
    Deque<HeldLock> current = CURRENT.get();
    current.push(held);
    return new LeaseholdSimpleLock(
        configuration, held, current, interrupts ? held.interruptOnLoss() : null);
  }

  static Optional<HeldLock> current() {
    return Optional.ofNullable(CURRENT.get().peek());
  }

  @Override
  protected Optional<SimpleLock> doExtend(LockConfiguration extended) {
    try {
      held.limit(extended.getLockAtMostFor());
      return Optional.of(new LeaseholdSimpleLock(extended, held, current, interrupt));
    } catch (LockLostException lost) {
      end(Duration.ZERO); // nobody can unlock it any more
      return Optional.empty();
    } catch (LeaseholdException error) {
      throw new LockException("could not extend " + held.resource(), error);
    }
  }

  @Override
  protected void doUnlock() {
    end(Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil()));
  }

  /** Throws nothing, because it would take the place of what the task has thrown. */
  private void end(Duration rest) {
    try {
      release(rest);
    } catch (LockLostException lost) {
      LOG.warn("The lock of a task was lost before it was unlocked: {}", lost.getMessage());
    } catch (LeaseholdException error) {
      LOG.warn("The lock {} was not kept for its lockAtLeastFor", held.resource(), error);
    } finally {
      current.remove(held);
      if (interrupt != null) {
        interrupt.close();
      }
    }
  }

  private void release(Duration rest) {
    if (rest.compareTo(SHORTEST_TTL) >= 0) {
      held.detach(rest);
      return;
    }
    if (!rest.isNegative() && !rest.isZero()) {
      sleepUntil(Instant.now().plus(rest));
    }
    held.unlock();
  }

  private static void sleepUntil(Instant end) {
    boolean interrupted = false;
    for (long rest; (rest = Duration.between(Instant.now(), end).toNanos()) > 0; ) {
      try {
        TimeUnit.NANOSECONDS.sleep(rest);
      } catch (InterruptedException again) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
