package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

class SuspensionClockTest {
  private long monotonic = Long.MAX_VALUE - 50;
  private long uptime = 1_000;

  @Test
  void theTimeOfASuspendedMachinePasses() {
    var clock = new SuspensionClock(() -> monotonic, () -> uptime);
    var deadline =
        new SafeDeadline(clock::time, clock.time(), Duration.ofSeconds(20), null, Duration.ZERO);
    monotonic += 100;
    uptime += Duration.ofMillis(90).toNanos(); // rounding
    assertEquals(monotonic, clock.time());
    uptime += Duration.ofSeconds(18).toNanos();
    assertTrue(deadline.remaining() > 0);
    uptime += Duration.ofSeconds(1).toNanos();
    assertTrue(deadline.remaining() <= 0);
    long before = clock.time();
    uptime -= Duration.ofMillis(10).toNanos(); // it never goes back
    assertEquals(before, clock.time());
  }

  @Test
  void theSystemsClockGoesOn() throws Exception {
    long before = SuspensionClock.now();
    Thread.sleep(1);
    assertTrue(SuspensionClock.now() - before > 0);
  }
}
