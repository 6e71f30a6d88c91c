package io.leasehold.bench;

import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.leasehold.client.HeldLock;
import io.leasehold.client.LockLostException;
import io.leasehold.client.LockOptions;
import io.leasehold.client.Locks;
import io.leasehold.client.TestSidecar;
import io.leasehold.v1.LockAcquired;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LockServerStream;
import io.leasehold.v1.LocksGrpc;
import io.leasehold.v1.UnlockRequest;
import java.util.Arrays;
import java.util.Iterator;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Lock and unlock, beside the same calls without the client; and how fast a loss arrives. */
public final class Bench {
  private static final int WARM_UP = 500;
  private static final int ROUNDS = 2000;
  private static final int LOSSES = 50;

  private Bench() {}

  /**
   * Measures, and prints.
   *
   * @param arguments the backend; memory by default
   * @throws Exception if something fails
   */
  public static void main(String[] arguments) throws Exception {
    String backend = arguments.length > 0 ? arguments[0] : "memory";
    try (TestSidecar sidecar = TestSidecar.start(backend)) {
      ManagedChannel channel =
          ManagedChannelBuilder.forTarget(sidecar.address()).usePlaintext().build();
      try (Locks locks = Locks.builder(TestSidecar.STORE).channel(channel).build()) {
        compare(backend, locks, LocksGrpc.newBlockingStub(channel));
        losses(backend, locks, sidecar);
      } finally {
        channel.shutdownNow();
      }
    }
  }

  private static void compare(String backend, Locks locks, LocksGrpc.LocksBlockingStub stub)
      throws InterruptedException {
    long[] client = new long[ROUNDS];
    long[] raw = new long[ROUNDS];
    for (int round = -WARM_UP; round < ROUNDS; round++) {
      long begin = System.nanoTime();
      locks.lock("bench-client").close();
      long middle = System.nanoTime();
      raw(stub);
      long end = System.nanoTime();
      if (round >= 0) {
        client[round] = middle - begin;
        raw[round] = end - middle;
      }
    }
    System.out.printf(
        "%s: lock and unlock, median of %d: client %d us, raw gRPC %d us, ratio %.2f%n",
        backend, ROUNDS, micros(client), micros(raw), (double) micros(client) / micros(raw));
  }

  private static void raw(LocksGrpc.LocksBlockingStub stub) {
    Context.CancellableContext context = Context.current().withCancellation();
    Context before = context.attach();
    LockAcquired grant;
    try {
      Iterator<LockServerStream> messages =
          stub.lockStream(
              LockRequest.newBuilder()
                  .setStoreName(TestSidecar.STORE)
                  .setResourceId("bench-raw")
                  .build());
      grant = messages.next().getLockAcquired();
    } finally {
      context.detach(before);
    }
    UnlockRequest request =
        UnlockRequest.newBuilder()
            .setStoreName(TestSidecar.STORE)
            .setResourceId("bench-raw")
            .setLockId(grant.getLockId())
            .build();
    if (!stub.unlock(request).isInitialized()) {
      throw new AssertionError();
    }
    context.cancel(null);
  }

  private static void losses(String backend, Locks locks, TestSidecar sidecar) throws Exception {
    long[] took = new long[LOSSES];
    for (int round = 0; round < LOSSES; round++) {
      CountDownLatch started = new CountDownLatch(1);
      long[] interrupted = new long[1];
      Thread worker = new Thread(() -> work(locks, started, interrupted));
      worker.start();
      started.await();
      long begin = System.nanoTime();
      sidecar.force("bench-loss");
      worker.join();
      took[round] = interrupted[0] - begin;
    }
    System.out.printf(
        "%s: from a forced unlock to the interrupt of the work, median of %d: %d us%n",
        backend, LOSSES, micros(took));
  }

  private static void work(Locks locks, CountDownLatch started, long[] interrupted) {
    try {
      locks.withLock(
          "bench-loss", LockOptions.defaults(), lock -> sleep(lock, started, interrupted));
    } catch (LockLostException lost) {
      // the expected loss
    } catch (InterruptedException error) {
      throw new AssertionError(error);
    }
  }

  private static void sleep(HeldLock lock, CountDownLatch started, long[] interrupted)
      throws InterruptedException {
    lock.check();
    started.countDown();
    try {
      Thread.sleep(60_000);
    } catch (InterruptedException lost) {
      interrupted[0] = System.nanoTime();
      throw lost;
    }
  }

  private static long micros(long[] nanos) {
    Arrays.sort(nanos);
    return TimeUnit.NANOSECONDS.toMicros(nanos[nanos.length / 2]);
  }
}
