package io.leasehold.shedlock;

import static java.util.Objects.requireNonNull;

import io.leasehold.client.HeldLock;
import io.leasehold.client.LeaseholdException;
import io.leasehold.client.LockOptions;
import io.leasehold.client.Locks;
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
 *   <li>{@code lockAtMostFor} is how long it is held at most. It may be generous: it is no longer
 *       the time that others wait after a crash.
 *   <li>{@code lockAtLeastFor}: a task that ends earlier leaves the lock behind for the rest, by a
 *       renewal that outlives the process. The store may round that up (to a whole number of
 *       seconds and at least 2 s on etcd, to 100 ms elsewhere). A rest of up to 100 ms is waited
 *       for instead.
 *   <li>{@code extend} sets a new {@code lockAtMostFor} from then on.
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
  private static final Duration SHORTEST = Duration.ofMillis(1);

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
   * @param options their {@code wait} and {@code maxHold} are not used
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
   * Returns a provider whose lost locks interrupt nobody. The task can ask {@link #currentLock}.
   *
   * @return another provider on the same locks
   */
  public LeaseholdLockProvider withoutInterrupts() {
    return new LeaseholdLockProvider(locks, options, false);
  }

  /**
   * Returns the lock that the calling thread took last by such a provider and has not unlocked: in
   * a task, that of the task. For its {@link HeldLock#token} and {@link HeldLock#check}; it is the
   * provider that unlocks it.
   *
   * @return the lock, if the thread has one
   */
  public static Optional<HeldLock> currentLock() {
    return LeaseholdSimpleLock.current();
  }

  @Override
  public Optional<SimpleLock> lock(LockConfiguration configuration) {
    Duration most = configuration.getLockAtMostFor();
    LockOptions limited = options.toBuilder().maxHold(most.isZero() ? SHORTEST : most).build();
    try {
      return locks
          .tryLock(configuration.getName(), limited)
          .map(held -> LeaseholdSimpleLock.taken(configuration, held, interrupts));
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new LockException("interrupted while taking " + configuration.getName(), interrupted);
    } catch (LeaseholdException error) {
      throw new LockException("could not take " + configuration.getName(), error);
    }
  }
}
