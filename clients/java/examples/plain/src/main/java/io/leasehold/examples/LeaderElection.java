package io.leasehold.examples;

import io.leasehold.client.HeldLock;
import io.leasehold.client.LeaseholdException;
import io.leasehold.client.LockOptions;
import io.leasehold.client.Locks;

/**
 * One of all candidates leads: the one that holds the lock. The others wait for it. When the
 * leader's process ends, the next one leads.
 */
public final class LeaderElection {
  private LeaderElection() {}

  /**
   * Runs a candidate until the process is ended.
   *
   * @param arguments the candidate's name
   * @throws InterruptedException never; only a loss interrupts it
   */
  public static void main(String[] arguments) throws InterruptedException {
    String candidate = arguments[0];
    LockOptions options = LockOptions.builder().label(candidate).build();
    try (Locks locks = Locks.of("lockstore")) {
      while (true) {
        try {
          locks.withLock("leader", options, lock -> lead(candidate, lock));
        } catch (LeaseholdException error) {
          System.out.println(candidate + " does not lead: " + error.getMessage());
          Thread.sleep(1000); // then it is a candidate again
        }
      }
    }
  }

  private static void lead(String candidate, HeldLock lock) throws InterruptedException {
    System.out.println(candidate + " leads with token " + lock.token());
    while (true) {
      Thread.sleep(1000); // the work of a leader, which the loss of the lock interrupts
    }
  }
}
