package leasehold.sdk;

import io.dapr.client.DaprClient;
import io.grpc.Context;
import io.grpc.StatusRuntimeException;
import io.leasehold.v1.EndLocksRequest;
import io.leasehold.v1.EndLocksResponse;
import io.leasehold.v1.GetLockRequest;
import io.leasehold.v1.GetLockResponse;
import io.leasehold.v1.GrantInfo;
import io.leasehold.v1.InspectionGrpc;
import io.leasehold.v1.ListLocksRequest;
import io.leasehold.v1.ListLocksResponse;
import io.leasehold.v1.ListWaitersRequest;
import io.leasehold.v1.ListWaitersResponse;
import io.leasehold.v1.LockEvent;
import io.leasehold.v1.LockScope;
import io.leasehold.v1.LockState;
import io.leasehold.v1.WatchLocksRequest;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** leasehold.v1.Inspection over the SDK's channel, with one store's name filled in. */
final class Inspector {
  /** A check of a watch's events. */
  interface Watch {
    void read(Iterator<LockEvent> events) throws Exception;
  }

  private final InspectionGrpc.InspectionBlockingStub stub;

  Inspector(DaprClient client) {
    this.stub = client.newGrpcStub("leasehold", InspectionGrpc::newBlockingStub);
  }

  static GetLockRequest.Builder lock(String resource, String... namespace) {
    return GetLockRequest.newBuilder()
        .setStoreName(Store.NAME)
        .setResourceId(resource)
        .addAllNamespace(List.of(namespace));
  }

  static LockScope.Builder scope(String... namespace) {
    return LockScope.newBuilder().addAllNamespace(List.of(namespace));
  }

  static List<String> ids(LockState state) {
    return state.getGrantsList().stream().map(GrantInfo::getGrantId).sorted().toList();
  }

  GetLockResponse get(GetLockRequest.Builder request) {
    return unary().getLock(request.build());
  }

  ListLocksResponse list(ListLocksRequest.Builder request) {
    return unary().listLocks(request.setStoreName(Store.NAME).build());
  }

  ListWaitersResponse waiters(ListWaitersRequest.Builder request) {
    return unary().listWaiters(request.setStoreName(Store.NAME).build());
  }

  EndLocksResponse end(EndLocksRequest.Builder request) {
    return unary().endLocks(request.setStoreName(Store.NAME).build());
  }

  /** Passes the events to `body`, and ends the watch with it. */
  void watch(WatchLocksRequest.Builder request, Watch body) throws Exception {
    try (Context.CancellableContext context = Context.current().withCancellation()) {
      Context before = context.attach();
      Iterator<LockEvent> events;
      try {
        events =
            stub.withDeadlineAfter(Store.STREAM_TIMEOUT_S, TimeUnit.SECONDS)
                .watchLocks(request.setStoreName(Store.NAME).build());
      } finally {
        context.detach(before);
      }
      body.read(events);
    }
  }

  boolean hasWatch() throws Exception {
    try {
      watch(WatchLocksRequest.newBuilder().setResourceId(Store.fresh()), Iterator::next);
      return true;
    } catch (StatusRuntimeException refused) {
      return !Refusals.infoOf(refused).getReason().equals("UNSUPPORTED");
    }
  }

  private InspectionGrpc.InspectionBlockingStub unary() {
    return stub.withDeadlineAfter(Store.CALL_TIMEOUT_MS, TimeUnit.MILLISECONDS);
  }
}
