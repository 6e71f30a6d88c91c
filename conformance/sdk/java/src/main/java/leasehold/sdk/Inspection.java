package leasehold.sdk;

import static leasehold.sdk.Inspector.ids;
import static leasehold.sdk.Inspector.scope;
import static leasehold.sdk.Refusals.expectRefusal;
import static leasehold.sdk.Report.expect;

import io.dapr.client.DaprClient;
import io.dapr.client.DaprClientBuilder;
import io.grpc.Status;
import io.leasehold.v1.EndLocksRequest;
import io.leasehold.v1.EndLocksResponse;
import io.leasehold.v1.GetLockResponse;
import io.leasehold.v1.GrantInfo;
import io.leasehold.v1.ListLocksRequest;
import io.leasehold.v1.ListLocksResponse;
import io.leasehold.v1.ListWaitersRequest;
import io.leasehold.v1.ListWaitersResponse;
import io.leasehold.v1.LockMode;
import io.leasehold.v1.LockResponse;
import io.leasehold.v1.LockScope;
import io.leasehold.v1.LockState;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Reaches leasehold.v1.Inspection over the channel of Dapr's Java SDK. The checks are those of
 * ../README.md.
 */
public final class Inspection {
  private final Inspector inspector;
  private final Store store;

  private Inspection(DaprClient client) {
    this.inspector = new Inspector(client);
    this.store = new Store(client);
  }

  /** Runs every check and exits with 1 if one failed. */
  public static void main(String[] args) throws Exception {
    Report report = new Report("java inspection");
    int code;
    try (DaprClient client = new DaprClientBuilder().build()) {
      new Inspection(client).check(report);
      code = report.close();
    }
    System.exit(code);
  }

  private void check(Report report) throws Exception {
    report.check("a held lock is shown with its grant, a free one without", this::oneLock);
    report.check("the grants of a shared lock are read in pages", this::readers);
    report.check("those who wait are read in their order, in pages", this::queue);
    report.check("what is held is listed in pages", this::listing);
    report.check("a scope chooses by namespace, with those below, by prefix and by holder", this::scopes);
    new Watching(inspector, store).check(report);
    report.check("a dry run shows what would be ended, and ends nothing", this::dryRun);
    report.check("the locks of a scope are ended, and their holders lose them", this::endingAScope);
    report.check("a grant is ended by its ID, and its successor is not", this::endingAGrant);
    report.check("to end everything must be asked for as such", this::everything);
    report.check("a store that does not exist is refused", this::noSuchStore);
  }

  private void oneLock() {
    String resource = Store.fresh();
    LockResponse grant = store.tryLock(store.request(resource).setTtl(Store.seconds(20)).setLabel("desk"));
    LockState lock = inspector.get(Inspector.lock(resource)).getLock();
    expect("resource and total", lock.getResourceId() + " " + lock.getGrantsTotal(), resource + " 1");
    GrantInfo held = lock.getGrants(0);
    expect(
        "grant",
        List.of(held.getGrantId(), label(held.getHolder()), held.getMode(), held.getForeign(), held.hasSince()),
        List.of(grant.getGrantId(), "desk", LockMode.LOCK_MODE_EXCLUSIVE, false, true));
    double remainingSeconds = Store.inSeconds(held.getRemaining());
    expect(remainingSeconds + " s remain of 20", remainingSeconds > 0 && remainingSeconds < 60, true);
    store.unlock(resource, grant.getLockId());
    expect("grants of a free one", inspector.get(Inspector.lock(resource)).getLock().getGrantsCount(), 0);
  }

  private void readers() {
    String resource = Store.fresh();
    List<LockResponse> grants = new ArrayList<>();
    for (int reader = 0; reader < 3; reader++) {
      grants.add(store.tryLock(store.request(resource).setMode(LockMode.LOCK_MODE_SHARED)));
    }
    List<LockState> shown =
        pages(
                token -> inspector.get(Inspector.lock(resource).setPageSize(2).setPageToken(token)),
                GetLockResponse::getNextPageToken)
            .stream()
            .map(GetLockResponse::getLock)
            .toList();
    expect("longest page", shown.stream().mapToInt(LockState::getGrantsCount).max().getAsInt(), 2);
    expect(
        "grants",
        shown.stream().flatMap(lock -> ids(lock).stream()).collect(Collectors.toSet()),
        grants.stream().map(LockResponse::getGrantId).collect(Collectors.toSet()));
    expect("totals", shown.stream().map(LockState::getGrantsTotal).collect(Collectors.toSet()), Set.of(3));
    grants.forEach(grant -> store.unlock(resource, grant.getLockId()));
  }

  private void queue() throws Exception {
    String resource = Store.fresh();
    LockResponse holder = store.tryLock(resource);
    List<CompletableFuture<Void>> waiting = new ArrayList<>();
    for (String name : List.of("first", "second")) {
      waiting.add(
          CompletableFuture.supplyAsync(() -> store.lock(store.request(resource).setLabel(name)), task -> new Thread(task).start())
              .thenAccept(grant -> store.unlock(resource, grant.getLockId())));
      long deadline = System.currentTimeMillis() + Store.CALL_TIMEOUT_MS / 2;
      while (inspector.get(Inspector.lock(resource)).getWaiters() < waiting.size()) {
        expect(name + " is shown as waiting in time", System.currentTimeMillis() < deadline, true);
        Thread.sleep(20);
      }
    }
    List<ListWaitersResponse> shown =
        pages(
            token ->
                inspector.waiters(
                    ListWaitersRequest.newBuilder().setResourceId(resource).setPageSize(1).setPageToken(token)),
            ListWaitersResponse::getNextPageToken);
    store.unlock(resource, holder.getLockId());
    for (CompletableFuture<Void> call : waiting) {
      call.get();
    }
    expect("longest page", shown.stream().mapToInt(ListWaitersResponse::getWaitersCount).max().getAsInt(), 1);
    expect(
        "queue",
        shown.stream()
            .flatMap(page -> page.getWaitersList().stream())
            .map(waiter -> waiter.getPosition() + " " + label(waiter.getHolder()))
            .toList(),
        List.of("1 first", "2 second"));
  }

  private void listing() {
    String[] namespace = {Store.fresh()};
    try (HeldLocks held = new HeldLocks(store, namespace, "a", "b", "c")) {
      List<ListLocksResponse> shown =
          pages(
              token ->
                  inspector.list(
                      ListLocksRequest.newBuilder().setScope(scope(namespace)).setPageSize(2).setPageToken(token)),
              ListLocksResponse::getNextPageToken);
      expect("longest page", shown.stream().mapToInt(ListLocksResponse::getLocksCount).max().getAsInt(), 2);
      List<LockState> states = shown.stream().flatMap(page -> page.getLocksList().stream()).toList();
      // A list is no snapshot: a lock may be listed again where a page ends.
      expect("names", names(states).stream().distinct().toList(), List.of("a", "b", "c"));
      for (LockState state : states) {
        expect("grants of " + state.getResourceId(), ids(state), List.of(held.grantId(state.getResourceId())));
      }
    }
  }

  private void scopes() {
    String[] namespace = {Store.fresh()};
    String[] below = {namespace[0], "below"};
    try (HeldLocks held = new HeldLocks(store, namespace, "a-1", "b-1");
        HeldLocks heldBelow = new HeldLocks(store, below, "a-2")) {
      String holder = inspector.get(Inspector.lock("b-1", namespace)).getLock().getGrants(0).getHolder();
      expect("the namespace", listed(scope(namespace), ""), List.of("a-1", "b-1"));
      expect("with those below", listed(scope(namespace).setChildren(true), ""), List.of("a-1", "a-2", "b-1"));
      expect("a prefix", listed(scope(namespace).setPrefix("a-"), ""), List.of("a-1"));
      expect("a holder", listed(scope(namespace), holder), List.of("b-1"));
    }
  }

  private List<String> listed(LockScope.Builder scope, String holder) {
    return names(
        inspector.list(ListLocksRequest.newBuilder().setScope(scope).setHolderPrefix(holder)).getLocksList());
  }

  private void dryRun() {
    String[] namespace = {Store.fresh()};
    try (HeldLocks held = new HeldLocks(store, namespace, "a", "b")) {
      EndLocksResponse answer =
          inspector.end(EndLocksRequest.newBuilder().setScope(scope(namespace)).setDryRun(true));
      expect("what would be ended", names(answer.getEndedList()), List.of("a", "b"));
      expect("more", answer.getMore(), false);
      held.unlock("a");
      held.unlock("b");
    }
  }

  private void endingAScope() {
    String[] namespace = {Store.fresh()};
    try (HeldLocks held = new HeldLocks(store, namespace, "a", "b")) {
      EndLocksRequest.Builder request =
          EndLocksRequest.newBuilder().setScope(scope(namespace).setPrefix("a")).setReason("a check of the SDKs");
      EndLocksResponse answer = inspector.end(request);
      expect("what was ended", names(answer.getEndedList()), List.of("a"));
      expect("its grants", ids(answer.getEnded(0)), List.of(held.grantId("a")));
      expectRefusal(() -> held.unlock("a"), Status.Code.ABORTED, "LOCK_LOST", "forced");
      expect("what is left to end", inspector.end(request).getEndedCount(), 0);
      held.unlock("b");
    }
  }

  private void endingAGrant() {
    String resource = Store.fresh();
    String grantId = store.tryLock(resource).getGrantId();
    EndLocksRequest.Builder request = EndLocksRequest.newBuilder().setResourceId(resource).setGrantId(grantId);
    expect("what was ended", ids(inspector.end(request).getEnded(0)), List.of(grantId));
    LockResponse successor = store.tryLock(resource);
    expectRefusal(() -> inspector.end(request), Status.Code.NOT_FOUND, "LOCK_NOT_FOUND", "");
    store.unlock(resource, successor.getLockId());
  }

  private void everything() {
    // A dry run, so that no locks of others end if the sidecar accepts it.
    EndLocksRequest.Builder request =
        EndLocksRequest.newBuilder().setScope(LockScope.newBuilder().setChildren(true)).setDryRun(true);
    expectRefusal(() -> inspector.end(request), Status.Code.INVALID_ARGUMENT, "INVALID_REQUEST", "");
  }

  private void noSuchStore() {
    expectRefusal(
        () -> inspector.get(Inspector.lock("r").setStoreName("nowhere")),
        Status.Code.NOT_FOUND,
        "STORE_NOT_FOUND",
        "");
  }

  /** Asks for page after page. */
  private static <P> List<P> pages(Function<String, P> ask, Function<P, String> nextToken) {
    List<P> pages = new ArrayList<>();
    String token = "";
    do {
      P page = ask.apply(token);
      pages.add(page);
      token = nextToken.apply(page);
    } while (!token.isEmpty());
    return pages;
  }

  private static List<String> names(List<LockState> states) {
    return states.stream().map(LockState::getResourceId).sorted().toList();
  }

  private static String label(String holder) {
    return holder.substring(holder.lastIndexOf('/') + 1);
  }
}
