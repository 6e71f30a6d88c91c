package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class SafeDeadlineTest {
  private long now = Long.MAX_VALUE - TimeUnit.SECONDS.toNanos(1); // it wraps around soon

  private SafeDeadline deadline(Duration ttl, Duration stopBefore) {
    return deadline(ttl, null, stopBefore);
  }

  private SafeDeadline deadline(Duration ttl, Duration maxHold, Duration stopBefore) {
    long since = now + TimeUnit.SECONDS.toNanos(7); // of waiting
    return new SafeDeadline(() -> now, since, ttl, maxHold, stopBefore);
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
  void itIsNeverLaterThanMaxHold() {
    SafeDeadline deadline = deadline(Duration.ofSeconds(20), Duration.ofSeconds(10), null);
    assertEquals(17_000, ms(deadline.remaining()));
    assertEquals(16_000, ms(deadline.untilStop())); // a tenth of maxHold, which is the shorter
    assertEquals(LossCause.MAX_HOLD, deadline.loss().cause());
    deadline.confirmed(now, Duration.ofSeconds(30));
    assertEquals(17_000, ms(deadline.remaining()));
    deadline.confirmed(now, Duration.ofMillis(15_981)); // within the drift allowance of 1.02 s
    assertEquals(LossCause.MAX_HOLD, deadline.loss().cause());
    deadline.confirmed(now, Duration.ofMillis(15_979));
    assertEquals(LossCause.UNCONFIRMED, deadline.loss().cause());
    assertEquals(
        LossCause.UNCONFIRMED, deadline(Duration.ofSeconds(20), null, null).loss().cause());
  }

  @Test
  void aNewLimitReplacesTheOneBefore() {
    SafeDeadline deadline = deadline(Duration.ofSeconds(20), Duration.ofSeconds(10), null);
    long askedAt = now;
    now += TimeUnit.SECONDS.toNanos(1);
    deadline.limited(askedAt, Duration.ofSeconds(90));
    assertEquals(17_980, ms(deadline.remaining()));
    assertEquals(15_980, ms(deadline.untilStop()));
    // The answer to a question that was sent before may not include the new limit.
    deadline.confirmed(askedAt, Duration.ofSeconds(2));
    assertEquals(17_980, ms(deadline.remaining()));
    deadline.limited(now, Duration.ofSeconds(1));
    assertEquals(1_000, ms(deadline.remaining()));
    assertEquals(900, ms(deadline.untilStop()));
  }

  @Test
  void ifALimitWasPerhapsSetTheShorterOneCounts() {
    SafeDeadline deadline = deadline(Duration.ofSeconds(20), Duration.ofSeconds(10), null);
    deadline.perhapsLimited(now, Duration.ofSeconds(90));
    assertEquals(17_000, ms(deadline.remaining()));
    deadline.perhapsLimited(now, Duration.ofSeconds(3));
    assertEquals(3_000, ms(deadline.remaining()));
    assertEquals(LossCause.MAX_HOLD, deadline.loss().cause());
  }

  @Test
  void theWorkHasATenthOfTheTtlToStopAtMostFiveSeconds() {
    SafeDeadline longOne = deadline(Duration.ofMinutes(10), null);
    assertEquals(5_000, ms(longOne.remaining() - longOne.untilStop()));
    SafeDeadline chosen = deadline(Duration.ofSeconds(20), Duration.ofSeconds(9));
    assertEquals(9_000, ms(chosen.remaining() - chosen.untilStop()));
  }
}
