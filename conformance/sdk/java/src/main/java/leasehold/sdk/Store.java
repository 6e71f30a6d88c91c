package leasehold.sdk;

import com.google.protobuf.Duration;
import io.dapr.client.DaprClient;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import io.leasehold.v1.CheckLocksRequest;
import io.leasehold.v1.ForceUnlockRequest;
import io.leasehold.v1.LockCheck;
import io.leasehold.v1.LockKeepAliveRequest;
import io.leasehold.v1.LockKeepAliveResponse;
import io.leasehold.v1.LockRef;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LockResponse;
import io.leasehold.v1.LocksGrpc;
import io.leasehold.v1.RenewLockRequest;
import io.leasehold.v1.UnlockRequest;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/** leasehold.v1.Locks over the SDK's channel, with one store's name filled in. */
final class Store {
  static final long CALL_TIMEOUT_MS = 10_000;
  static final long STREAM_TIMEOUT_S = 60;

  /** Of the environment's LOCK_STORE. */
  static final String NAME =
      Optional.ofNullable(System.getenv("LOCK_STORE")).filter(name -> !name.isEmpty()).orElse("locks");

  private final LocksGrpc.LocksBlockingStub locks;
  private final LocksGrpc.LocksStub streams;

  /** The stubs send the SDK's API token; "leasehold" is only their label. */
  Store(DaprClient client) {
    this.locks = client.newGrpcStub("leasehold", LocksGrpc::newBlockingStub);
    this.streams = client.newGrpcStub("leasehold", LocksGrpc::newStub);
    // A busy machine may need longer than a call has for the classes that the first one loads.
    locks.withDeadlineAfter(STREAM_TIMEOUT_S, TimeUnit.SECONDS).checkLocks(CheckLocksRequest.getDefaultInstance());
  }

  static Duration seconds(long count) {
    return Duration.newBuilder().setSeconds(count).build();
  }

  static double inSeconds(Duration duration) {
    return duration.getSeconds() + duration.getNanos() / 1e9;
  }

  /** The name of a resource that nobody else uses. */
  static String fresh() {
    return "java-" + UUID.randomUUID();
  }

  LockRequest.Builder request(String resource) {
    return LockRequest.newBuilder().setStoreName(NAME).setResourceId(resource);
  }

  LockResponse lock(LockRequest.Builder request, long timeoutMs) {
    return locks.withDeadlineAfter(timeoutMs, TimeUnit.MILLISECONDS).lock(request.build());
  }

  LockResponse lock(LockRequest.Builder request) {
    return lock(request, CALL_TIMEOUT_MS);
  }

  LockResponse tryLock(LockRequest.Builder request) {
    return lock(request.setImmediate(true));
  }

  LockResponse tryLock(String resource) {
    return tryLock(request(resource));
  }

  LockResponse eventuallyLocks(String resource, long limitMs) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(limitMs);
    while (true) {
      try {
        return tryLock(resource);
      } catch (StatusRuntimeException refused) {
        if (System.nanoTime() > deadline) {
          throw refused;
        }
        Thread.sleep(50);
      }
    }
  }

  RenewLockRequest.Builder renewal(String resource, String lockId) {
    return RenewLockRequest.newBuilder().setStoreName(NAME).setResourceId(resource).setLockId(lockId);
  }

  long renew(RenewLockRequest.Builder request) {
    return unary().renewLock(request.build()).getTtl().getSeconds();
  }

  void unlock(String resource, String lockId, String... namespace) {
    UnlockRequest request =
        UnlockRequest.newBuilder()
            .setStoreName(NAME)
            .setResourceId(resource)
            .setLockId(lockId)
            .addAllNamespace(List.of(namespace))
            .build();
    unary().unlock(request);
  }

  void force(String resource) {
    force(resource, "");
  }

  /** Ends this grant, or all if its ID is empty. */
  void force(String resource, String grantId) {
    ForceUnlockRequest request =
        ForceUnlockRequest.newBuilder()
            .setStoreName(NAME)
            .setResourceId(resource)
            .setGrantId(grantId)
            .setReason("a check of the SDKs")
            .build();
    unary().forceUnlock(request);
  }

  List<LockCheck> check(LockRef... refs) {
    return unary().checkLocks(CheckLocksRequest.newBuilder().addAllLocks(List.of(refs)).build()).getLocksList();
  }

  /** Opens a stream of renewals, whose answers go to the observer. */
  StreamObserver<LockKeepAliveRequest> keepAlive(StreamObserver<LockKeepAliveResponse> answers) {
    return streams.withDeadlineAfter(STREAM_TIMEOUT_S, TimeUnit.SECONDS).lockKeepAlive(answers);
  }

  /** Holds the resource until the returned lock is closed. */
  HeldLock stream(LockRequest.Builder request) {
    return HeldLock.open(locks, request.build());
  }

  private LocksGrpc.LocksBlockingStub unary() {
    return locks.withDeadlineAfter(CALL_TIMEOUT_MS, TimeUnit.MILLISECONDS);
  }
}
