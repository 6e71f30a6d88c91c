package io.leasehold.client;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** The listeners to the loss of a lock: threads, which are interrupted, and callbacks. */
final class LossListeners {
  private final Set<InterruptOnLoss> scopes = ConcurrentHashMap.newKeySet();
  private final List<Consumer<LockLostException>> callbacks = new CopyOnWriteArrayList<>();

  void add(InterruptOnLoss scope) {
    scopes.add(scope);
  }

  /** Returns whether no thread works under the lock any more. */
  boolean remove(InterruptOnLoss scope) {
    scopes.remove(scope);
    return scopes.isEmpty();
  }

  void add(Consumer<LockLostException> callback) {
    callbacks.add(callback);
  }

  /**
   * Reports the loss to all. A thread that adds a listener while the lock is being lost calls this,
   * too. No callback is called twice: only the thread that removes it calls it.
   */
  void report(Supplier<LockLostException> loss) {
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
