package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.inprocess.InProcessChannelBuilder;
import io.grpc.inprocess.InProcessServerBuilder;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import io.leasehold.v1.CheckLocksRequest;
import io.leasehold.v1.CheckLocksResponse;
import io.leasehold.v1.LockAcquired;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LockServerStream;
import io.leasehold.v1.LocksGrpc;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/** Cases that a real sidecar cannot be made to produce. */
@TestInstance(TestInstance.Lifecycle.PER_METHOD)
class FakeSidecarTest {
  private final CountDownLatch released = new CountDownLatch(1);
  private final AtomicInteger checks = new AtomicInteger();
  private int ttlMillis;
  private Server server;
  private ManagedChannel channel;

  private final class Fake extends LocksGrpc.LocksImplBase {
    @Override
    public void lockStream(LockRequest request, StreamObserver<LockServerStream> stream) {
      ServerCallStreamObserver<LockServerStream> call =
          (ServerCallStreamObserver<LockServerStream>) stream;
      call.setOnCancelHandler(released::countDown);
      LockAcquired grant =
          LockAcquired.newBuilder()
              .setLockId("id")
              .setFencingToken(7)
              .setTtl(
                  com.google.protobuf.Duration.newBuilder()
                      .setSeconds(ttlMillis / 1000)
                      .setNanos(ttlMillis % 1000 * 1_000_000))
              .build();
      stream.onNext(LockServerStream.newBuilder().setLockAcquired(grant).build());
    }

    @Override
    public void checkLocks(CheckLocksRequest request, StreamObserver<CheckLocksResponse> observer) {
      checks.incrementAndGet(); // and never answers
    }
  }

  @BeforeEach
  void start() throws Exception {
    String name = InProcessServerBuilder.generateName();
    server = InProcessServerBuilder.forName(name).addService(new Fake()).build().start();
    channel = InProcessChannelBuilder.forName(name).build();
  }

  @AfterEach
  void stop() {
    channel.shutdownNow();
    server.shutdownNow();
  }

  @Test
  void aLockThatComesAfterItsDeadlineIsNotAcquired() throws Exception {
    ttlMillis = 1;
    try (Locks locks = Locks.builder("fake").channel(channel).build()) {
      LeaseholdException error = assertThrows(LeaseholdException.class, () -> locks.lock("x"));
      assertEquals("UNAVAILABLE", error.reason());
      Actor.await(released);
    }
  }

  @Test
  void questionsThatAreNotAnsweredAreAskedAgain() throws Exception {
    ttlMillis = 9000;
    try (Locks locks = Locks.builder("fake").channel(channel).build();
        HeldLock lock = locks.lock("x")) {
      LockLostException lost =
          assertThrows(LockLostException.class, () -> lock.run(Actor::workUntilInterrupted));
      assertEquals(LossCause.UNCONFIRMED, lost.lossCause());
      // 7.6 s long: asked at 1.5 s, given up at 3 s, asked at once, ...
      assertTrue(checks.get() >= 2, "asked " + checks.get() + " times");
      Actor.await(released);
    }
  }
}
