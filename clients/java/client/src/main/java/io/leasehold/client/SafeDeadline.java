package io.leasehold.client;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * Until when a lock may be believed in, by the local clock. Times are in nanoseconds of a monotonic
 * clock; they may wrap around.
 */
final class SafeDeadline {
  private static final long DRIFT_CONSTANT = TimeUnit.MILLISECONDS.toNanos(20);
  private static final long LONGEST_STOP = TimeUnit.SECONDS.toNanos(5);

  private final LongSupplier clock;
  private final long stopBefore;
  private volatile long deadline;

  /**
   * @param clock the monotonic clock
   * @param sentAt when the request was sent
   * @param waited how long the sidecar waited for the lock
   * @param ttl the TTL that was granted
   * @param stopBefore how long before the deadline the lock counts as lost, or null for the default
   */
  SafeDeadline(
      LongSupplier clock, long sentAt, Duration waited, Duration ttl, Duration stopBefore) {
    this.clock = clock;
    long life = nanos(ttl);
    this.stopBefore = stopBefore == null ? Math.min(life / 10, LONGEST_STOP) : nanos(stopBefore);
    this.deadline = sentAt + nanos(waited) + life - life / 20 - DRIFT_CONSTANT;
  }

  /** Moves the deadline: at {@code askedAt} the sidecar was asked, and it vouched for this long. */
  void confirmed(long askedAt, Duration validFor) {
    deadline = askedAt + nanos(validFor);
  }

  /** Nanoseconds until the deadline; not positive once it has passed. */
  long remaining() {
    return deadline - clock.getAsLong();
  }

  /** Nanoseconds until the work is to be cancelled; not positive once it is time. */
  long untilStop() {
    return remaining() - stopBefore;
  }

  /** A duration in nanoseconds, at most 73 years, so that sums do not overflow. */
  static long nanos(Duration duration) {
    long longest = Long.MAX_VALUE / 4;
    return duration.getSeconds() >= TimeUnit.NANOSECONDS.toSeconds(longest)
        ? longest
        : duration.toNanos();
  }
}
