package leasehold.sdk;

import static leasehold.sdk.Refusals.expectRefusal;
import static leasehold.sdk.Refusals.expectWaitDeadline;
import static leasehold.sdk.Report.expect;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import io.leasehold.v1.LockCheck;
import io.leasehold.v1.LockKeepAliveRequest;
import io.leasehold.v1.LockKeepAliveResponse;
import io.leasehold.v1.LockMode;
import io.leasehold.v1.LockRef;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LockResponse;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * The checks of alpha2 about the terms of a grant: who shares it, what names it, how long a call
 * waits for it, how long it is valid, and what ends it.
 */
final class Terms {
  private final Store store;

  Terms(Store store) {
    this.store = store;
  }

  void check(Report report) {
    report.check("readers share a lock, and a writer is refused until the last has unlocked", this::sharing);
    report.check("a resource in a namespace is another than the same name without it", this::namespaces);
    report.check("a refusal names the holder with its label", this::label);
    report.check("a wait ends a call that waits, and a wait of zero is a try", this::waiting);
    report.check("a wait ends the waiting of a stream, and not its lock", this::waitOfAStream);
    report.check("a check says for how long a lock is valid, or why it is not", this::validity);
    report.check("one stream renews many locks, and one that fails does not end it", this::keepAlive);
    report.check("a detached lock outlives its stream until its TTL", this::detaching);
    report.check("a limit that is set later ends a lock that the sidecar renews", this::laterLimit);
    report.check("a forced unlock with a grant ID ends that grant and no other", this::forceOne);
  }

  private void sharing() {
    String resource = Store.fresh();
    for (LockResponse reader : List.of(read(resource), read(resource))) {
      expectLocked(() -> store.tryLock(resource));
      store.unlock(resource, reader.getLockId());
    }
    LockResponse writer = store.tryLock(resource);
    expectLocked(() -> read(resource));
    store.unlock(resource, writer.getLockId());
  }

  private void namespaces() {
    String resource = Store.fresh();
    LockResponse plain = store.tryLock(resource);
    LockResponse named = store.tryLock(inShop(resource));
    expectLocked(() -> store.tryLock(inShop(resource)));
    store.unlock(resource, named.getLockId(), "shop", "eu");
    expectLocked(() -> store.tryLock(resource));
    store.unlock(resource, plain.getLockId());
  }

  private LockRequest.Builder inShop(String resource) {
    return store.request(resource).addNamespace("shop").addNamespace("eu");
  }

  private void label() {
    String resource = Store.fresh();
    LockResponse grant = store.tryLock(store.request(resource).setLabel("nightly-import"));
    try {
      store.tryLock(resource);
      throw new AssertionError("it was answered instead of refused");
    } catch (StatusRuntimeException refused) {
      String holder = Refusals.infoOf(refused).getMetadataOrDefault("holder", "");
      expect("last part of the holder", holder.substring(holder.lastIndexOf('/') + 1), "nightly-import");
    }
    store.unlock(resource, grant.getLockId());
  }

  /**
   * A held resource. Each try needs its own: after one that ended late, it is free. A call without
   * its own wait would get it in time.
   */
  private String heldForAWhile() {
    String resource = Store.fresh();
    store.tryLock(store.request(resource).setMaxHold(Store.seconds(9)));
    return resource;
  }

  private void waiting() {
    expectWaitDeadline(() -> store.lock(store.request(heldForAWhile()).setWait(Store.seconds(1))));
    expectLocked(() -> store.lock(store.request(heldForAWhile()).setWait(Store.seconds(0))));
  }

  private void waitOfAStream() throws Exception {
    expectWaitDeadline(() -> store.stream(store.request(heldForAWhile()).setWait(Store.seconds(2))));
    String resource = Store.fresh();
    try (HeldLock stream = store.stream(store.request(resource).setWait(Store.seconds(1)))) {
      TimeUnit.SECONDS.sleep(2);
      expectLocked(() -> store.tryLock(resource));
      store.unlock(resource, stream.grant().getLockId());
      stream.rest();
    }
  }

  private void validity() {
    String held = Store.fresh();
    String lost = Store.fresh();
    LockResponse grant = store.tryLock(store.request(held).setTtl(Store.seconds(20)));
    LockResponse gone = store.tryLock(lost);
    store.force(lost);
    List<LockCheck> checks =
        store.check(
            ref(Store.NAME, held, grant.getLockId()),
            ref(Store.NAME, lost, gone.getLockId()),
            ref(Store.NAME, held, "made-up"),
            ref("nowhere", held, grant.getLockId()));
    expect(
        "the answer to each",
        checks.stream().map(it -> it.hasValidFor() + " " + it.getReason() + " " + it.getCause()).toList(),
        List.of("true  ", "false LOCK_LOST forced", "false NOT_HELD_HERE ", "false STORE_NOT_FOUND "));
    double validSeconds = Store.inSeconds(checks.get(0).getValidFor());
    expect(validSeconds + " s are within the TTL", validSeconds > 0 && validSeconds < 20, true);
    store.unlock(held, grant.getLockId());
  }

  private static LockRef ref(String store, String resource, String lockId) {
    return LockRef.newBuilder().setStoreName(store).setResourceId(resource).setLockId(lockId).build();
  }

  private void keepAlive() throws Exception {
    List<String> resources = List.of(Store.fresh(), Store.fresh());
    List<String> lockIds =
        resources.stream()
            .map(it -> store.tryLock(store.request(it).setNoRenewal(true).setTtl(Store.seconds(10))).getLockId())
            .toList();
    Answers<LockKeepAliveResponse> answers = new Answers<>();
    StreamObserver<LockKeepAliveRequest> requests = store.keepAlive(answers);
    requests.onNext(keepAliveOf(7, resources.get(0), "made-up"));
    LockKeepAliveResponse failed = answers.take(LockKeepAliveResponse.class);
    expect(
        "failure", failed.getId() + " " + failed.getReason() + " " + failed.getHeld(), "7 LOCK_NOT_FOUND true");
    requests.onNext(keepAliveOf(0, resources.get(0), lockIds.get(0)));
    requests.onNext(keepAliveOf(1, resources.get(1), lockIds.get(1)));
    requests.onCompleted();
    Set<String> renewed =
        List.of(answers.take(LockKeepAliveResponse.class), answers.take(LockKeepAliveResponse.class)).stream()
            .map(it -> it.getId() + " " + (it.getTtl().getSeconds() >= 20))
            .collect(Collectors.toSet());
    expect("renewed", renewed, Set.of("0 true", "1 true"));
    answers.expectEnd();
    store.unlock(resources.get(0), lockIds.get(0));
    store.unlock(resources.get(1), lockIds.get(1));
  }

  private static LockKeepAliveRequest keepAliveOf(long id, String resource, String lockId) {
    return LockKeepAliveRequest.newBuilder()
        .setId(id)
        .setStoreName(Store.NAME)
        .setResourceId(resource)
        .setLockId(lockId)
        .setTtl(Store.seconds(20))
        .build();
  }

  private void detaching() throws Exception {
    String resource = Store.fresh();
    try (HeldLock held = store.stream(store.request(resource))) {
      store.renew(store.renewal(resource, held.grant().getLockId()).setDetach(true).setTtl(Store.seconds(4)));
      held.rest();
    }
    expectLocked(() -> store.tryLock(resource));
    store.unlock(resource, store.eventuallyLocks(resource, 15_000).getLockId());
  }

  private void laterLimit() throws Exception {
    String resource = Store.fresh();
    LockResponse grant = store.tryLock(store.request(resource).setTtl(Store.seconds(60)));
    store.renew(
        store.renewal(resource, grant.getLockId()).setTtl(Store.seconds(60)).setMaxHold(Store.seconds(1)));
    store.unlock(resource, store.eventuallyLocks(resource, 15_000).getLockId());
    expectRefusal(
        () -> store.unlock(resource, grant.getLockId()), Status.Code.ABORTED, "LOCK_LOST", "max_hold");
  }

  private void forceOne() {
    String resource = Store.fresh();
    LockResponse first = read(resource);
    LockResponse second = read(resource);
    store.force(resource, first.getGrantId());
    expectRefusal(() -> store.unlock(resource, first.getLockId()), Status.Code.ABORTED, "LOCK_LOST", "forced");
    expectRefusal(
        () -> store.force(resource, first.getGrantId()), Status.Code.NOT_FOUND, "LOCK_NOT_FOUND", "");
    store.unlock(resource, second.getLockId());
  }

  private LockResponse read(String resource) {
    return store.tryLock(store.request(resource).setMode(LockMode.LOCK_MODE_SHARED));
  }

  private static void expectLocked(Runnable call) {
    expectRefusal(call, Status.Code.ABORTED, "RESOURCE_LOCKED", "");
  }
}
