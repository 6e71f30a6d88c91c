import io.dapr.client.DaprClientBuilder;
import io.leasehold.client.HeldLock;
import io.leasehold.client.LockOptions;
import io.leasehold.client.Locks;
import io.leasehold.shedlock.LeaseholdLockProvider;
import java.time.Duration;
import java.time.Instant;
import net.javacrumbs.shedlock.core.LockConfiguration;

/** Takes a lock in an application that uses the Dapr SDK, too. */
public final class Main {
  public static void main(String[] arguments) throws Exception {
    try (var dapr = new DaprClientBuilder().build();
        var locks = Locks.of("lockstore")) {
      dapr.waitForSidecar(60_000).block();
      if (dapr.getMetadata().block() == null) {
        throw new AssertionError("no metadata");
      }
      var task =
          new LockConfiguration(Instant.now(), "task", Duration.ofMinutes(1), Duration.ZERO);
      new LeaseholdLockProvider(locks).lock(task).orElseThrow().unlock();
      long token = locks.callWithLock("consumer", LockOptions.defaults(), HeldLock::token);
      System.out.println("token " + token);
    }
    System.exit(0); // the SDK leaves threads behind that would keep the process
  }
}
