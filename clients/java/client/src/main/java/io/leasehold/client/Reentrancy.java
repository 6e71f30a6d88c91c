package io.leasehold.client;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Counts how often a thread holds a lock that may be taken again. */
final class Reentrancy {
  private record Owner(Thread thread, List<String> namespace, String name) {}

  private final Map<Owner, Entry> entries = new HashMap<>();

  /** The lock again, if the calling thread has it. Throws the loss if it is lost. */
  synchronized Optional<HeldLock> again(String name, LockOptions options) {
    Entry entry = entries.get(owner(name, options));
    if (entry == null) {
      return Optional.empty();
    }
    if (entry.mode != options.mode()) {
      throw Requests.invalid("mode must be that of the lock that the thread has: " + entry.mode);
    }
    entry
        .session
        .loss()
        .ifPresent(
            loss -> {
              throw entry.session.exception(loss);
            });
    entry.holds++;
    return Optional.of(new HeldLock(entry.session, entry));
  }

  /** The lock for the first time. */
  synchronized HeldLock first(LockSession session, LockOptions options) {
    Entry entry = new Entry(owner(session.resource(), options), session, options.mode());
    entries.put(entry.owner, entry);
    return new HeldLock(session, entry);
  }

  private static Owner owner(String name, LockOptions options) {
    return new Owner(Thread.currentThread(), options.namespace(), name);
  }

  /** A lock that a thread holds at least once. */
  final class Entry {
    private final Owner owner;
    private final LockSession session;
    private final LockMode mode;
    private int holds = 1;

    private Entry(Owner owner, LockSession session, LockMode mode) {
      this.owner = owner;
      this.session = session;
      this.mode = mode;
    }

    /** Ends all holds: the thread's next lock is a new one. */
    void forget() {
      synchronized (Reentrancy.this) {
        entries.remove(owner, this);
      }
    }

    /** Ends one hold, and returns whether it was the last. */
    boolean leave() {
      synchronized (Reentrancy.this) {
        holds--;
        if (holds == 0) {
          entries.remove(owner, this);
        }
        return holds == 0;
      }
    }
  }
}
