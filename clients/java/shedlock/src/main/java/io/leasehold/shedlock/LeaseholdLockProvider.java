package io.leasehold.shedlock;

import static java.util.Objects.requireNonNull;

import io.leasehold.client.HeldLock;
import io.leasehold.client.LeaseholdException;
import io.leasehold.client.LockOptions;
import io.leasehold.client.Locks;
import io.leasehold.client.NotAcquiredException;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * A ShedLock provider whose locks are held by leasehold.
 *
 * <pre>{@code
 * @Bean
 * LockProvider lockProvider(Locks locks) {
 *   return new LeaseholdLockProvider(locks);
 * }
 * }</pre>
 *
 * <ul>
 *   <li>The lock's name is the resource. The sidecar renews it, and the death of the process
 *       releases it at once, unless {@code lockAtLeastFor} still keeps it.
 *   <li>{@code lockAtMostFor} is how long the lock is held at most. It may be generous, because it
 *       is not the time that others wait after a crash. Less than 1 s counts as 1 s.
 *   <li>{@code lockAtLeastFor}: when a task ends earlier, its lock stays for the rest of this time,
 *       even if the process ends. The time is measured by the monotonic clock from the call of
 *       {@link #lock} (or from the extension), so a change of the time of day has no effect. The
 *       store may round the rest up (etcd to whole seconds and to at least 2 s). For a rest of less
 *       than 100 ms, unlocking waits. A rest above the store's {@code maxTTL} (24 h by default) is
 *       refused: the lock is released, and a warning is logged.
 *   <li>{@code extend} sets a new {@code lockAtMostFor} and {@code lockAtLeastFor}, both from then
 *       on. It returns nothing if the lock is lost; the lock may be unlocked after that, which does
 *       nothing more.
 *   <li>A lost lock (its {@code lockAtMostFor} is over, somebody forced it, the sidecar died or did
 *       not confirm it in time) interrupts the thread that took it, until that thread unlocks.
 *       Unlocking then clears that interrupt, and logs a warning: it throws nothing, because that
 *       would hide the task's own error. {@link #withoutInterrupts} is for locks that are not
 *       unlocked by the thread that took them.
 *   <li>{@link #currentLock} gives the task its fencing token.
 * </ul>
 *
 * <p>A sidecar that cannot be reached, or refuses the request for another reason than that somebody
 * else has the lock, is a {@link LockException}.
 */
public final class LeaseholdLockProvider implements ExtensibleLockProvider {
  private static final Duration SHORTEST = Duration.ofSeconds(1);

  private final Locks locks;
  private final LockOptions options;
  private final boolean interrupts;

  /**
   * Takes locks with the default options.
   *
   * @param locks not closed by this
   */
  public LeaseholdLockProvider(Locks locks) {
    this(locks, LockOptions.defaults());
  }

  /**
   * Takes locks with some options, such as a TTL, a namespace or a label.
   *
   * @param locks not closed by this
   * @param options their {@code wait}, {@code maxHold} and {@code reentrant} are not used
   */
  public LeaseholdLockProvider(Locks locks, LockOptions options) {
    this(locks, options, true);
  }

  private LeaseholdLockProvider(Locks locks, LockOptions options, boolean interrupts) {
    this.locks = requireNonNull(locks, "locks");
    this.options = requireNonNull(options, "options");
    this.interrupts = interrupts;
  }

  /**
   * Returns a provider whose lost locks interrupt no thread. The task can ask {@link #currentLock}.
   *
   * @return another provider on the same locks
   */
  public LeaseholdLockProvider withoutInterrupts() {
    return new LeaseholdLockProvider(locks, options, false);
  }

  /**
   * Returns the lock that the calling thread took last by such a provider and has not unlocked: in
   * a task, that of the task. For its {@link HeldLock#token} and {@link HeldLock#check}; the
   * provider unlocks it.
   *
   * @return the lock, if the thread has one
   */
  public static Optional<HeldLock> currentLock() {
    return LeaseholdSimpleLock.current();
  }

  /** A shorter lock could end before it is received. */
  static Duration atMost(Duration lockAtMostFor) {
    return lockAtMostFor.compareTo(SHORTEST) < 0 ? SHORTEST : lockAtMostFor;
  }

  @Override
  public Optional<SimpleLock> lock(LockConfiguration configuration) {
    long since = System.nanoTime();
    LockOptions limited =
        options.toBuilder()
            .wait(Duration.ZERO)
            .maxHold(atMost(configuration.getLockAtMostFor()))
            .reentrant(false) // a second task of the same thread is another task
            .build();
    try {
      HeldLock held = locks.lock(configuration.getName(), limited);
      return Optional.of(
          LeaseholdSimpleLock.taken(held, since, configuration.getLockAtLeastFor(), interrupts));
    } catch (NotAcquiredException held) {
      return Optional.empty();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new LockException("interrupted while taking " + configuration.getName(), interrupted);
    } catch (LeaseholdException error) {
      throw new LockException("could not take " + configuration.getName(), error);
    }
  }
}
