package leasehold.redisfront;

import java.time.Duration;
import java.util.concurrent.Callable;

/** Runs named checks, prints one line each, and counts. Threads may share it. */
final class Report {
  /** A check: it fails by throwing. */
  interface Check {
    void run() throws Exception;
  }

  /** Until when a condition must hold. */
  private static final Duration PATIENCE = Duration.ofMinutes(1);

  private int passed;
  private int failed;

  void check(String subject, String sentence, Check body) {
    try {
      body.run();
      line("ok: " + subject + ": " + sentence, 1, 0);
    } catch (Exception | AssertionError error) {
      line("FAILED: " + subject + ": " + sentence + ": " + causes(error), 0, 1);
    }
  }

  /** The error and what caused it. */
  private static String causes(Throwable error) {
    return error.getCause() == null ? "" + error : error + ", because " + causes(error.getCause());
  }

  void ignore(String subject, String sentence, String why) {
    line("ignored: " + subject + ": " + sentence + ": " + why, 0, 0);
  }

  private synchronized void line(String line, int passed, int failed) {
    this.passed += passed;
    this.failed += failed;
    System.out.println(line);
  }

  /** Prints the totals and returns the exit code. */
  synchronized int close() {
    System.out.printf("%d passed, %d failed%n", passed, failed);
    return failed > 0 || passed == 0 ? 1 : 0;
  }

  static void expect(String what, Object got, Object want) {
    if (!got.equals(want)) {
      throw new AssertionError(what + " is " + got + ", not " + want);
    }
  }

  /** Repeats the attempt until it returns something. */
  static <T> T eventually(String what, Callable<T> attempt) throws Exception {
    long deadline = System.nanoTime() + PATIENCE.toNanos();
    while (true) {
      T result = attempt.call();
      if (result != null) {
        return result;
      }
      if (System.nanoTime() > deadline) {
        throw new AssertionError("not within " + PATIENCE.toSeconds() + " s: " + what);
      }
      Thread.sleep(20);
    }
  }
}
