package io.leasehold.client;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * Until when a lock counts as held, by the local clock. Times are in nanoseconds of a monotonic
 * clock; they may wrap around.
 */
final class SafeDeadline {
  private static final long DRIFT_CONSTANT = TimeUnit.MILLISECONDS.toNanos(20);
  private static final long LONGEST_STOP = TimeUnit.SECONDS.toNanos(5);
  private static final long FOREVER = Long.MAX_VALUE / 4;

  /**
   * @param at the deadline
   * @param limit the time of {@code maxHold}, which the deadline never passes
   * @param stopBefore how long before the deadline the lock counts as lost
   * @param since answers to questions from before that time are too old to count
   */
  private record Value(long at, long limit, long stopBefore, long since) {
    Value moved(long to) {
      return new Value(earlier(to, limit), limit, stopBefore, since);
    }
  }

  private final LongSupplier clock;
  private final Duration stopBefore;
  private final long life;
  private final long drift;
  private final boolean leavesTime;
  private volatile Value value;

  /**
   * @param clock the monotonic clock
   * @param since when the request was sent, plus how long the sidecar waited for the lock
   * @param ttl the TTL that was granted
   * @param maxHold how long the lock may be held, or null
   * @param stopBefore how long before the deadline the lock counts as lost, or null for the default
   */
  SafeDeadline(
      LongSupplier clock, long since, Duration ttl, Duration maxHold, Duration stopBefore) {
    this.clock = clock;
    this.stopBefore = stopBefore;
    this.life = nanos(ttl);
    this.drift = life / 20 + DRIFT_CONSTANT;
    this.leavesTime = stopBefore == null || nanos(stopBefore) < life - drift;
    this.value = granted(since, maxHold == null ? FOREVER : nanos(maxHold));
  }

  /** Whether a {@code stopBefore} that was chosen leaves any time of the TTL for the work. */
  boolean leavesTime() {
    return leavesTime;
  }

  private Value granted(long since, long hold) {
    long stop =
        stopBefore == null ? Math.min(Math.min(life, hold) / 10, LONGEST_STOP) : nanos(stopBefore);
    return new Value(0, since + hold, stop, clock.getAsLong()).moved(since + life - drift);
  }

  /** Moves the deadline: at {@code askedAt} the sidecar was asked, and it confirmed this long. */
  synchronized void confirmed(long askedAt, Duration validFor) {
    if (askedAt - value.since >= 0) {
      value = value.moved(askedAt + nanos(validFor));
    }
  }

  /** The sidecar has renewed the lock at a request sent then, and set a new {@code maxHold}. */
  synchronized void limited(long askedAt, Duration maxHold) {
    // A question that is under way may have been answered with the limit before.
    value = granted(askedAt, nanos(maxHold));
  }

  /** A new {@code maxHold} may have been set or not: a shorter one counts. */
  synchronized void perhapsLimited(long askedAt, Duration maxHold) {
    long limit = earlier(value.limit, askedAt + nanos(maxHold));
    value = new Value(value.at, limit, value.stopBefore, value.since).moved(value.at);
  }

  /** Nanoseconds until the deadline; not positive once it has passed. */
  long remaining() {
    return value.at - clock.getAsLong();
  }

  /** Nanoseconds until the work is to be cancelled; not positive once that time has come. */
  long untilStop() {
    Value now = value;
    return now.at - now.stopBefore - clock.getAsLong();
  }

  /** Why the lock is lost when this deadline passes. */
  Loss loss() {
    Value now = value;
    return now.at - now.limit >= -drift ? Loss.heldForMaxHold() : Loss.unconfirmed();
  }

  private static long earlier(long one, long other) {
    return one - other < 0 ? one : other;
  }

  /** A duration in nanoseconds, at most 73 years, so that sums do not overflow. */
  static long nanos(Duration duration) {
    return duration.getSeconds() >= TimeUnit.NANOSECONDS.toSeconds(FOREVER)
        ? FOREVER
        : duration.toNanos();
  }
}
