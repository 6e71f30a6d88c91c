package io.leasehold.client;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Who is told that a lock is lost: threads, which are interrupted, and callbacks. */
final class LossListeners {
  private final Set<InterruptOnLoss> scopes = ConcurrentHashMap.newKeySet();
  private final List<Consumer<LockLostException>> callbacks = new CopyOnWriteArrayList<>();

  void add(InterruptOnLoss scope) {
    scopes.add(scope);
  }

  /** Tells whether no thread works under the lock any more. */
  boolean remove(InterruptOnLoss scope) {
    scopes.remove(scope);
    return scopes.isEmpty();
  }

  void add(Consumer<LockLostException> callback) {
    callbacks.add(callback);
  }

  /**
   * Tells all. Whoever adds itself while the lock is being lost calls this too, and nobody is told
   * twice: a callback is called by the thread that removes it.
   */
  void tell(Supplier<LockLostException> loss) {
    scopes.forEach(InterruptOnLoss::interrupt);
    for (Consumer<LockLostException> callback : callbacks) {
      if (callbacks.remove(callback)) {
        // A thread of its own, because a callback that blocks must not stop the client's loop.
        Thread thread = new Thread(() -> callback.accept(loss.get()), "leasehold-lost");
        thread.setDaemon(true);
        thread.start();
      }
    }
  }
}
