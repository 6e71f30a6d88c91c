package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ConnectionTest extends OnEachBackend {
  @Test
  void theAddressAndTokenComeFromTheEnvironment() throws Exception {
    try (TestSidecar own = TestSidecar.start(backend, Map.of("DAPR_API_TOKEN", "open sesame"))) {
      String port = Integer.toString(own.port());
      String name = newName();
      Process child =
          Child.start(name, "5", Map.of("DAPR_GRPC_PORT", port, "DAPR_API_TOKEN", "open sesame"));
      try {
        assertTrue(Child.token(child) > 0);
        try (Locks locks = client(own, "open sesame")) {
          // Longer than the TTL: the token is sent with CheckLocks, too.
          assertThrows(NotAcquiredException.class, () -> locks.lock(name, Duration.ofSeconds(6)));
        }
      } finally {
        child.destroyForcibly();
      }
      Process stranger = Child.start(newName(), "2", Map.of("DAPR_GRPC_PORT", port));
      assertEquals("reason UNAUTHENTICATED", stranger.inputReader().readLine());
    }
    try (Locks locks =
        Locks.builder(TestSidecar.STORE)
            .environment(
                Map.of(
                    "DAPR_GRPC_ENDPOINT", "http://" + sidecar().address(), "DAPR_GRPC_PORT", "1"))
            .build()) {
      locks.lock(newName()).close();
    }
  }

  private static Locks client(TestSidecar sidecar, String token) {
    return Locks.builder(TestSidecar.STORE).address(sidecar.address()).apiToken(token).build();
  }

  @Test
  void anHttpPortIsNamed() {
    String address = "127.0.0.1:" + sidecar().httpPort();
    try (Locks locks = Locks.builder(TestSidecar.STORE).address(address).build()) {
      String message =
          assertThrows(LeaseholdException.class, () -> locks.lock(newName())).getMessage();
      assertTrue(message.startsWith(address + " is the sidecar's HTTP port; "), message);
      assertTrue(message.contains("DAPR_GRPC_PORT"), message);
    }
  }

  @Test
  void aChannelOfTheCallerIsUsedAndLeftOpen() throws Exception {
    ManagedChannel channel =
        ManagedChannelBuilder.forTarget(sidecar().address()).usePlaintext().build();
    try {
      try (Locks locks = Locks.builder(TestSidecar.STORE).channel(channel).build()) {
        locks.lock(newName()).close();
      }
      assertFalse(channel.isShutdown());
      try (Locks locks = Locks.builder(TestSidecar.STORE).channel(channel).build()) {
        locks.lock(newName()).close();
      }
    } finally {
      channel.shutdownNow();
    }
  }

  @Test
  void aClosedClientEndsItsLocksAndWaits() throws Exception {
    ManagedChannel channel =
        ManagedChannelBuilder.forTarget(sidecar().address()).usePlaintext().build();
    try {
      for (Locks closed :
          new Locks[] {
            sidecar().locks(), Locks.builder(TestSidecar.STORE).channel(channel).build()
          }) {
        String name = newName();
        HeldLock held = closed.lock(name);
        Actor<HeldLock> waiting = new Actor<>(() -> closed.lock(name));
        sidecar().awaitWaiters(name, 1);
        closed.close();
        assertEquals(
            LossCause.DISCONNECTED, assertThrows(LockLostException.class, held::check).lossCause());
        assertEquals("CANCELLED", waiting.failure(LeaseholdException.class).reason());
        Eventually.check(
            "the lock is free", () -> sidecar().inspect(name).getLock().getGrantsCount() == 0);
      }
    } finally {
      channel.shutdownNow();
    }
  }

  @Test
  void theAddressMayBeAUnixSocket(@TempDir Path folder) throws Exception {
    Path socket = folder.resolve("sidecar.socket");
    try (UnixRelay relay = UnixRelay.start(socket, sidecar().port());
        Locks locks = Locks.builder(TestSidecar.STORE).address("unix:" + socket).build()) {
      assertTrue(Files.exists(socket));
      locks.lock(newName()).close();
      assertTrue(relay.connections() > 0);
    }
  }

  @Test
  void aSidecarThatIsNotThereIsUnavailable() throws Exception {
    String refused = "connection refused; start \"leasehold sidecar\", or ";
    Locks.Builder builder = Locks.builder(TestSidecar.STORE);
    assertEquals(
        "no sidecar at 127.0.0.1:1: " + refused + "set DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT",
        unavailable(builder.environment(Map.of("DAPR_GRPC_PORT", "1"))));
    assertEquals(
        "no sidecar at 127.0.0.1:1: " + refused + "set another address",
        unavailable(builder.address("127.0.0.1:1")));
    String socket = unavailable(builder.address("unix:/nowhere/app.socket"));
    assertTrue(socket.startsWith("no sidecar at unix:/nowhere/app.socket: "), socket);
    ManagedChannel channel = ManagedChannelBuilder.forTarget("127.0.0.1:1").usePlaintext().build();
    try {
      assertEquals(
          "no sidecar: " + refused + "use another channel", unavailable(builder.channel(channel)));
    } finally {
      channel.shutdownNow();
    }
  }

  /** Regression: the end of the stream cancelled the call before its request was sent. */
  @Test
  void aRefusalBeforeTheRequestIsSentIsUnavailable() throws Exception {
    ManagedChannel channel = ManagedChannelBuilder.forTarget("127.0.0.1:1").usePlaintext().build();
    try {
      Channel slow = ClientInterceptors.intercept(channel, new SendsAfterTheEnd());
      unavailable(Locks.builder(TestSidecar.STORE).channel(slow));
    } finally {
      channel.shutdownNow();
    }
  }

  /** Sends the request only when the call's end has been reported. */
  private static final class SendsAfterTheEnd implements ClientInterceptor {
    @Override
    public <Q, R> ClientCall<Q, R> interceptCall(
        MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
      CountDownLatch ended = new CountDownLatch(1);
      return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
        @Override
        public void start(Listener<R> listener, Metadata headers) {
          super.start(
              new SimpleForwardingClientCallListener<>(listener) {
                @Override
                public void onClose(Status status, Metadata trailers) {
                  super.onClose(status, trailers);
                  ended.countDown();
                }
              },
              headers);
        }

        @Override
        public void sendMessage(Q message) {
          try {
            assertTrue(ended.await(10, TimeUnit.SECONDS));
          } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
          }
          super.sendMessage(message);
        }
      };
    }
  }

  private String unavailable(Locks.Builder builder) {
    try (Locks locks = builder.build()) {
      LeaseholdException error =
          assertThrows(LeaseholdException.class, () -> locks.lock(newName()));
      assertEquals("UNAVAILABLE", error.reason());
      return error.getMessage();
    }
  }

  @Test
  void aClosedClientIsNamedInTheError() throws Exception {
    Locks locks = sidecar().locks();
    locks.lock(newName()).close();
    locks.close();
    LeaseholdException error = assertThrows(LeaseholdException.class, () -> locks.lock(newName()));
    assertEquals("CANCELLED", error.reason());
    assertEquals("the client is closed", error.getMessage());
  }

  @Test
  void aSidecarThatIsBackIsFoundAgain() throws Exception {
    try (TestSidecar own = TestSidecar.start(backend);
        Locks locks = own.locks()) {
      locks.lock(newName()).close();
      own.command("kill");
      String name = newName();
      Eventually.check(
          "the death is noticed",
          () -> {
            try (HeldLock lock = locks.lock(name)) {
              return lock.isLost();
            } catch (LeaseholdException error) {
              return error.reason().equals("UNAVAILABLE");
            }
          });
      own.command("start");
      Eventually.check(
          "the sidecar is found again",
          () -> {
            try (HeldLock lock = locks.lock(name)) {
              return !lock.isLost();
            }
          });
    }
  }

  @Test
  void aTryOfASidecarThatDoesNotAnswerIsGivenUp() throws Exception {
    try (TestSidecar own = TestSidecar.start(backend);
        Locks locks = own.locks()) {
      locks.lock(newName()).close();
      own.command("suspend");
      LeaseholdException error =
          assertThrows(LeaseholdException.class, () -> locks.tryLock(newName()));
      assertEquals("UNAVAILABLE", error.reason());
      own.command("resume");
    }
  }
}
