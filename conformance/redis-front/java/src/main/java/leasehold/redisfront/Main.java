package leasehold.redisfront;

import java.util.List;
import java.util.logging.Level;
import java.util.logging.LogManager;

/** Checks ShedLock and Spring Integration over Lettuce and over Jedis. */
final class Main {
  private Main() {}

  public static void main(String[] arguments) throws InterruptedException {
    // Lost connections are part of the checks, and Spring logs each.
    LogManager.getLogManager().getLogger("").setLevel(Level.OFF);
    var stage = new Stage(System.getenv());
    var report = new Report();
    List<Thread> threads =
        List.of(
            new Thread(() -> new ShedLock(stage, Connections.lettuce()).run(report)),
            new Thread(() -> new ShedLock(stage, Connections.jedis()).run(report)),
            new Thread(() -> new LockRegistry(stage, Connections.lettuce()).run(report)),
            new Thread(() -> new LockRegistry(stage, Connections.jedis()).run(report)));
    threads.forEach(Thread::start);
    for (Thread thread : threads) {
      thread.join();
    }
    // The connections' own threads would go on.
    System.exit(report.close());
  }
}
