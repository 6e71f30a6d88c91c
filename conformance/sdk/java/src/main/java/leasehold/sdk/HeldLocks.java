package leasehold.sdk;

import io.grpc.StatusRuntimeException;
import io.leasehold.v1.LockResponse;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/** Locks of one namespace, each labelled with its name, that are unlocked at the close. */
final class HeldLocks implements AutoCloseable {
  private final Store store;
  private final String[] namespace;
  private final Map<String, LockResponse> grants = new TreeMap<>();

  HeldLocks(Store store, String[] namespace, String... names) {
    this.store = store;
    this.namespace = namespace;
    for (String name : names) {
      grants.put(
          name,
          store.tryLock(store.request(name).addAllNamespace(Arrays.asList(namespace)).setLabel(name)));
    }
  }

  String grantId(String name) {
    return grants.get(name).getGrantId();
  }

  void unlock(String name) {
    store.unlock(name, grants.get(name).getLockId(), namespace);
  }

  @Override
  public void close() {
    for (String name : grants.keySet()) {
      try {
        unlock(name);
      } catch (StatusRuntimeException ended) {
        // By the check itself.
      }
    }
  }
}
