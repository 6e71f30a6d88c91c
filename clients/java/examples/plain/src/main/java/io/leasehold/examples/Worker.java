package io.leasehold.examples;

import io.leasehold.client.HeldLock;
import io.leasehold.client.LockLostException;
import io.leasehold.client.LockOptions;
import io.leasehold.client.Locks;
import java.time.Duration;

/**
 * A worker that stops when it loses its lock. Start it, and then end its lock by force:
 *
 * <pre>{@code
 * curl -X DELETE -d '{"force":true}' \
 *   http://127.0.0.1:3500/v1.0-alpha2/lock/lockstore/invoices
 * }</pre>
 */
public final class Worker {
  private Worker() {}

  /**
   * Works until the lock is lost.
   *
   * @param arguments none
   * @throws InterruptedException never; only the loss interrupts it
   */
  public static void main(String[] arguments) throws InterruptedException {
    LockOptions options =
        LockOptions.builder().wait(Duration.ofSeconds(10)).label("invoice run").build();
    try (Locks locks = Locks.of("lockstore")) {
      locks.withLock("invoices", options, Worker::writeInvoices);
    } catch (LockLostException lost) {
      System.out.println("stopped: " + lost.lossCause());
    }
  }

  private static void writeInvoices(HeldLock lock) throws InterruptedException {
    for (int invoice = 1; ; invoice++) {
      // The store of the invoices gets the token, too, and refuses a smaller one.
      System.out.println("invoice " + invoice + " with token " + lock.token());
      Thread.sleep(200); // the loss interrupts it
    }
  }
}
