package leasehold.sdk;

import static leasehold.sdk.Refusals.expectRefusal;
import static leasehold.sdk.Refusals.expectWaitDeadline;

import io.dapr.client.DaprClient;
import io.dapr.client.DaprClientBuilder;
import io.grpc.Status;
import io.leasehold.v1.LockResponse;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Reaches alpha2, leasehold.v1.Locks, over the channel of Dapr's Java SDK. The checks are those of
 * ../README.md.
 */
public final class Alpha2 {
  private final Store store;

  private Alpha2(Store store) {
    this.store = store;
  }

  /** Runs every check and exits with 1 if one failed. */
  public static void main(String[] args) throws Exception {
    Report report = new Report("java alpha2");
    int code;
    try (DaprClient client = new DaprClientBuilder().build()) {
      Store store = new Store(client);
      Alpha2 alpha2 = new Alpha2(store);
      report.check(
          "a lock is granted with a rising token, refused to others, and unlocked once", alpha2::lockAndUnlock);
      report.check(
          "a waiting call is granted when the holder unlocks, or ends at its deadline", alpha2::waiting);
      report.check("the sidecar renews a lock past its TTL", alpha2::renewal);
      report.check("an app renews its own lock, and one that does not loses it", alpha2::ownRenewal);
      report.check("the end of a stream releases its lock", alpha2::streamIsTheLock);
      report.check("an unlock ends the stream without an error", alpha2::unlockEndsTheStream);
      report.check("a forced unlock ends the stream and fails the holder's later call", alpha2::force);
      report.check("a store that does not exist is refused", alpha2::noSuchStore);
      new Terms(store).check(report);
      code = report.close();
    }
    System.exit(code);
  }

  private void lockAndUnlock() {
    String resource = Store.fresh();
    LockResponse grant = store.lock(store.request(resource).setImmediate(true).setTtl(Store.seconds(20)));
    if (grant.getLockId().isEmpty() || grant.getFencingToken() <= 0 || grant.getTtl().getSeconds() < 20) {
      throw new AssertionError("granted " + grant);
    }
    expectRefusal(() -> store.tryLock(resource), Status.Code.ABORTED, "RESOURCE_LOCKED", "");
    store.unlock(resource, grant.getLockId());
    expectRefusal(() -> store.unlock(resource, grant.getLockId()), Status.Code.NOT_FOUND, "LOCK_NOT_FOUND", "");
    LockResponse again = store.tryLock(resource);
    if (again.getFencingToken() <= grant.getFencingToken()) {
      throw new AssertionError("token " + again.getFencingToken() + " after " + grant.getFencingToken());
    }
    store.unlock(resource, again.getLockId());
  }

  private void waiting() throws Exception {
    String resource = Store.fresh();
    LockResponse first = store.tryLock(resource);
    expectWaitDeadline(() -> store.lock(store.request(resource), 1_000));
    // Long enough for the next call to be in the queue by then.
    CompletableFuture<Void> released =
        CompletableFuture.runAsync(
            () -> store.unlock(resource, first.getLockId()),
            CompletableFuture.delayedExecutor(3, TimeUnit.SECONDS));
    LockResponse second = store.lock(store.request(resource));
    released.get();
    long waitedMs = second.getWaited().getSeconds() * 1000 + second.getWaited().getNanos() / 1_000_000;
    if (waitedMs < 200 || second.getFencingToken() <= first.getFencingToken()) {
      throw new AssertionError("granted " + second + " after " + first);
    }
    store.unlock(resource, second.getLockId());
  }

  private void renewal() throws Exception {
    String resource = Store.fresh();
    LockResponse grant = store.lock(store.request(resource).setImmediate(true).setTtl(Store.seconds(6)));
    expectStillHeldAfter(resource, grant);
  }

  private void ownRenewal() throws Exception {
    String resource = Store.fresh();
    LockResponse grant =
        store.lock(store.request(resource).setImmediate(true).setNoRenewal(true).setTtl(Store.seconds(6)));
    long renewedSeconds = store.renew(store.renewal(resource, grant.getLockId()).setTtl(Store.seconds(20)));
    if (renewedSeconds < 20) {
      throw new AssertionError("renewed for " + renewedSeconds + " s");
    }
    expectStillHeldAfter(resource, grant);
    store.lock(store.request(resource).setImmediate(true).setNoRenewal(true).setTtl(Store.seconds(2)));
    store.unlock(resource, store.eventuallyLocks(resource, 10_000).getLockId());
  }

  private void expectStillHeldAfter(String resource, LockResponse grant) throws Exception {
    TimeUnit.SECONDS.sleep(grant.getTtl().getSeconds() + 2);
    expectRefusal(() -> store.tryLock(resource), Status.Code.ABORTED, "RESOURCE_LOCKED", "");
    store.unlock(resource, grant.getLockId());
  }

  private void streamIsTheLock() throws Exception {
    String resource = Store.fresh();
    try (HeldLock held = store.stream(store.request(resource))) {
      if (held.grant().getFencingToken() <= 0) {
        throw new AssertionError("granted " + held.grant());
      }
      expectRefusal(() -> store.tryLock(resource), Status.Code.ABORTED, "RESOURCE_LOCKED", "");
    }
    store.unlock(resource, store.eventuallyLocks(resource, 5_000).getLockId());
  }

  private void unlockEndsTheStream() {
    String resource = Store.fresh();
    try (HeldLock held = store.stream(store.request(resource))) {
      store.unlock(resource, held.grant().getLockId());
      held.rest();
    }
  }

  private void force() {
    String resource = Store.fresh();
    try (HeldLock held = store.stream(store.request(resource))) {
      store.force(resource);
      expectRefusal(held::rest, Status.Code.ABORTED, "LOCK_LOST", "forced");
    }
    LockResponse grant = store.tryLock(resource);
    store.force(resource);
    expectRefusal(
        () -> store.unlock(resource, grant.getLockId()), Status.Code.ABORTED, "LOCK_LOST", "forced");
    expectRefusal(() -> store.force(resource), Status.Code.NOT_FOUND, "LOCK_NOT_FOUND", "");
  }

  private void noSuchStore() {
    expectRefusal(
        () -> store.lock(store.request("r").setStoreName("nowhere")),
        Status.Code.NOT_FOUND,
        "STORE_NOT_FOUND",
        "");
  }
}
