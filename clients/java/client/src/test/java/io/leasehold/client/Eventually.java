package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.fail;

import java.time.Duration;
import java.util.concurrent.Callable;

/** Polls with a generous limit. */
public final class Eventually {
  /** How long anything may take on a busy machine. */
  public static final Duration PATIENCE = Duration.ofSeconds(40);

  private Eventually() {}

  /** Waits until something holds. */
  public static void check(String what, Callable<Boolean> condition) throws InterruptedException {
    long end = System.nanoTime() + PATIENCE.toNanos();
    while (System.nanoTime() < end) {
      try {
        if (condition.call()) {
          return;
        }
      } catch (RuntimeException notYet) {
        // asked again
      } catch (InterruptedException interrupted) {
        throw interrupted;
      } catch (Exception error) {
        fail(error);
      }
      Thread.sleep(20);
    }
    fail("not in time: " + what);
  }
}
