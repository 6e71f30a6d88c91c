package leasehold.sdk;

import com.google.protobuf.Duration;
import io.dapr.client.DaprClient;
import io.leasehold.v1.ForceUnlockRequest;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LockResponse;
import io.leasehold.v1.LocksGrpc;
import io.leasehold.v1.RenewLockRequest;
import io.leasehold.v1.UnlockRequest;
import java.util.concurrent.TimeUnit;

/** leasehold.v1.Locks over the SDK's channel, with one store's name filled in. */
final class Store {
  private static final long CALL_TIMEOUT_MS = 10_000;

  private final String name;
  private final LocksGrpc.LocksBlockingStub locks;

  /** The stub sends the SDK's API token; "leasehold" is only a label of it. */
  Store(DaprClient client, String name) {
    this.name = name;
    this.locks = client.newGrpcStub("leasehold", LocksGrpc::newBlockingStub);
  }

  static Duration seconds(long count) {
    return Duration.newBuilder().setSeconds(count).build();
  }

  LockRequest.Builder request(String resource) {
    return LockRequest.newBuilder().setStoreName(name).setResourceId(resource);
  }

  LockResponse lock(LockRequest.Builder request, long timeoutMs) {
    return locks.withDeadlineAfter(timeoutMs, TimeUnit.MILLISECONDS).lock(request.build());
  }

  LockResponse lock(LockRequest.Builder request) {
    return lock(request, CALL_TIMEOUT_MS);
  }

  LockResponse tryLock(String resource) {
    return lock(request(resource).setImmediate(true));
  }

  long renew(String resource, String lockId, long ttlSeconds) {
    RenewLockRequest request =
        RenewLockRequest.newBuilder()
            .setStoreName(name)
            .setResourceId(resource)
            .setLockId(lockId)
            .setTtl(seconds(ttlSeconds))
            .build();
    return unary().renewLock(request).getTtl().getSeconds();
  }

  void unlock(String resource, String lockId) {
    UnlockRequest request =
        UnlockRequest.newBuilder().setStoreName(name).setResourceId(resource).setLockId(lockId).build();
    unary().unlock(request);
  }

  void force(String resource) {
    unary().forceUnlock(ForceUnlockRequest.newBuilder().setStoreName(name).setResourceId(resource).build());
  }

  /** Holds the resource until the answer is closed. */
  HeldLock stream(String resource) {
    return HeldLock.open(locks, request(resource).build());
  }

  private LocksGrpc.LocksBlockingStub unary() {
    return locks.withDeadlineAfter(CALL_TIMEOUT_MS, TimeUnit.MILLISECONDS);
  }
}
