package leasehold.sdk;

/** Runs named checks, prints one line each, and counts. */
final class Report {
  /** A check: it fails by throwing. */
  interface Check {
    void run() throws Exception;
  }

  private final String subject;
  private int passed;
  private int failed;

  Report(String subject) {
    this.subject = subject;
  }

  void check(String sentence, Check body) {
    try {
      body.run();
      passed++;
      System.out.printf("ok      %s: %s%n", subject, sentence);
    } catch (Exception | AssertionError error) {
      failed++;
      System.out.printf("FAILED  %s: %s: %s%n", subject, sentence, error);
    }
  }

  void ignore(String sentence, String why) {
    System.out.printf("ignored %s: %s: %s%n", subject, sentence, why);
  }

  /** Prints the totals and returns the exit code. */
  int close() {
    System.out.printf("%d passed, %d failed%n", passed, failed);
    return failed > 0 || passed == 0 ? 1 : 0;
  }

  static void expect(String what, Object got, Object want) {
    if (!got.equals(want)) {
      throw new AssertionError(what + " is " + got + ", not " + want);
    }
  }
}
