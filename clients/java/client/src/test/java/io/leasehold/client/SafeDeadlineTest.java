package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class SafeDeadlineTest {
  private long now = Long.MAX_VALUE - TimeUnit.SECONDS.toNanos(1); // it wraps around soon

  private SafeDeadline deadline(Duration ttl, Duration stopBefore) {
    return new SafeDeadline(() -> now, now, Duration.ofSeconds(7), ttl, stopBefore);
  }

  private static long ms(long nanos) {
    return TimeUnit.NANOSECONDS.toMillis(nanos);
  }

  @Test
  void itCountsFromTheRequest() {
    SafeDeadline deadline = deadline(Duration.ofSeconds(20), null);
    // 7 s of waiting, 20 s of TTL, less 1 s and 20 ms of drift
    assertEquals(25_980, ms(deadline.remaining()));
    assertEquals(23_980, ms(deadline.untilStop()));
    now += TimeUnit.SECONDS.toNanos(30);
    assertEquals(-4_020, ms(deadline.remaining()));
  }

  @Test
  void anAnswerMovesItFromWhenItWasAsked() {
    SafeDeadline deadline = deadline(Duration.ofSeconds(20), null);
    long askedAt = now + TimeUnit.SECONDS.toNanos(3);
    now = askedAt + TimeUnit.SECONDS.toNanos(2);
    deadline.confirmed(askedAt, Duration.ofSeconds(18));
    assertEquals(16_000, ms(deadline.remaining()));
  }

  @Test
  void theWorkHasATenthOfTheTtlToStopAtMostFiveSeconds() {
    SafeDeadline longOne = deadline(Duration.ofMinutes(10), null);
    assertEquals(5_000, ms(longOne.remaining() - longOne.untilStop()));
    SafeDeadline chosen = deadline(Duration.ofSeconds(20), Duration.ofSeconds(9));
    assertEquals(9_000, ms(chosen.remaining() - chosen.untilStop()));
  }
}
