package leasehold.sdk;

import static leasehold.sdk.Report.expect;

import io.leasehold.v1.EndCause;
import io.leasehold.v1.LockEvent;
import io.leasehold.v1.WatchLocksRequest;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** The checks of Inspection that need a store with WATCH. */
final class Watching {
  private final Inspector inspector;
  private final Store store;

  Watching(Inspector inspector, Store store) {
    this.inspector = inspector;
    this.store = store;
  }

  void check(Report report) throws Exception {
    checkWatch(report, "a watch sends what is held, and then each change", this::watching);
    checkWatch(report, "a watch of one resource shows no other", this::watchingOne);
  }

  private void checkWatch(Report report, String sentence, Report.Check body) throws Exception {
    if (inspector.hasWatch()) {
      report.check(sentence, body);
    } else {
      report.ignore(sentence, "the store has no WATCH: it answers UNSUPPORTED");
    }
  }

  private void watching() throws Exception {
    String[] namespace = {Store.fresh()};
    try (HeldLocks held = new HeldLocks(store, namespace, "a")) {
      inspector.watch(
          WatchLocksRequest.newBuilder().setScope(Inspector.scope(namespace)),
          events -> {
            expect("at first", untilSynced(events), Map.of("a", List.of(held.grantId("a"))));
            String later;
            try (HeldLocks other = new HeldLocks(store, namespace, "b")) {
              later = other.grantId("b");
              expect("a grant", shown(nextState(events)), List.of("b", List.of(later)));
            }
            LockEvent event = nextState(events);
            expect("an end", shown(event), List.of("b", List.of()));
            expect("what ended", event.getEnded(0).getGrant().getGrantId(), later);
            // Not every store can report why a grant ended.
            EndCause cause = event.getEnded(0).getCause();
            Set<EndCause> right = Set.of(EndCause.END_CAUSE_RELEASED, EndCause.END_CAUSE_UNKNOWN);
            expect(cause + " is a right cause", right.contains(cause), true);
          });
    }
  }

  private void watchingOne() throws Exception {
    String[] namespace = {Store.fresh()};
    inspector.watch(
        WatchLocksRequest.newBuilder().setResourceId("a").addAllNamespace(Arrays.asList(namespace)),
        events -> {
          untilSynced(events);
          try (HeldLocks other = new HeldLocks(store, namespace, "b");
              HeldLocks held = new HeldLocks(store, namespace, "a")) {
            expect("a grant", shown(nextState(events)), List.of("a", List.of(held.grantId("a"))));
          }
        });
  }

  private static LockEvent nextState(Iterator<LockEvent> events) {
    LockEvent event = events.next();
    while (!event.hasState()) {
      event = events.next();
    }
    return event;
  }

  /** Folds the events into a table of grant IDs, until all locks were sent. */
  private static Map<String, List<String>> untilSynced(Iterator<LockEvent> events) {
    Map<String, List<String>> table = new TreeMap<>();
    while (true) {
      LockEvent event = events.next();
      if (event.getRestarted()) {
        table.clear();
      }
      if (event.hasState()) {
        table.put(event.getState().getResourceId(), Inspector.ids(event.getState()));
      }
      if (event.getSynced()) {
        return table;
      }
    }
  }

  private static List<Object> shown(LockEvent event) {
    return List.of(event.getState().getResourceId(), Inspector.ids(event.getState()));
  }
}
