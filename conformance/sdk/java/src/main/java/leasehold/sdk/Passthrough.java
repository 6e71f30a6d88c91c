package leasehold.sdk;

import static leasehold.sdk.Report.expect;

import io.dapr.client.DaprClient;
import io.dapr.client.DaprClientBuilder;
import io.dapr.client.DaprPreviewClient;
import io.dapr.client.SubscriptionListener;
import io.dapr.client.domain.CloudEvent;
import io.dapr.client.domain.ComponentMetadata;
import io.dapr.client.domain.DaprMetadata;
import io.dapr.client.domain.StateOptions;
import io.dapr.client.domain.UnlockResponseStatus;
import io.dapr.exceptions.DaprException;
import io.dapr.utils.TypeRef;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import reactor.core.publisher.Mono;

/**
 * Checks all but locks with Dapr's Java SDK, through a sidecar that serves the locks itself. The
 * checks are those of ../README.md.
 */
public final class Passthrough {
  private static final Duration CALL_TIMEOUT = Duration.ofSeconds(15);
  private static final List<String> STATE_STORES = Arrays.asList(System.getenv("STATE_STORES").split(","));
  private static final String SECRET_STORE = System.getenv("SECRET_STORE");
  private static final String PUBSUB = System.getenv("PUBSUB");

  private final Report report = new Report("java");
  private final DaprClient dapr;
  private final DaprPreviewClient preview;

  private Passthrough(DaprClient dapr, DaprPreviewClient preview) {
    this.dapr = dapr;
    this.preview = preview;
  }

  /** Runs every check and exits with 1 if one failed. */
  public static void main(String[] args) throws Exception {
    int code;
    try (DaprClient dapr = new DaprClientBuilder().build();
        DaprPreviewClient preview = new DaprClientBuilder().buildPreviewClient()) {
      Passthrough checks = new Passthrough(dapr, preview);
      checks.checkEvents();
      checks.checkLock(System.getenv("LOCK_STORE"));
      STATE_STORES.forEach(checks::checkState);
      checks.checkSurroundings();
      code = checks.report.close();
    }
    System.exit(code);
  }

  private void checkLock(String store) {
    report.check(
        "a lock is granted, refused and released beside it",
        () -> {
          String resource = fresh("passthrough");
          expect("success", preview.tryLock(store, resource, "a", 30).block(CALL_TIMEOUT), true);
          expect("success", preview.tryLock(store, resource, "b", 30).block(CALL_TIMEOUT), false);
          expect("status", preview.unlock(store, resource, "a").block(CALL_TIMEOUT), UnlockResponseStatus.SUCCESS);
        });
  }

  private void checkState(String store) {
    report.check(
        "state is saved, read and deleted in " + store,
        () -> {
          String key = fresh("key");
          dapr.saveState(store, key, "value of ключ").block(CALL_TIMEOUT);
          expect("value", read(store, key), "value of ключ");
          dapr.deleteState(store, key).block(CALL_TIMEOUT);
          expect("value", String.valueOf(read(store, key)), "null");
        });
    report.check(
        "a stale ETag is refused in " + store,
        () -> {
          String key = fresh("etag");
          StateOptions options = new StateOptions(StateOptions.Consistency.STRONG, StateOptions.Concurrency.FIRST_WRITE);
          dapr.saveState(store, key, "first").block(CALL_TIMEOUT);
          String stale = dapr.getState(store, key, String.class).block(CALL_TIMEOUT).getEtag();
          dapr.saveState(store, key, stale, "second", options).block(CALL_TIMEOUT);
          try {
            dapr.saveState(store, key, stale, "third", options).block(CALL_TIMEOUT);
            throw new AssertionError("it was saved");
          } catch (DaprException refused) {
            expect("the refusal names the ETag", refused.getMessage().contains("etag mismatch"), true);
          }
          expect("value", read(store, key), "second");
        });
  }

  private String read(String store, String key) {
    return dapr.getState(store, key, String.class).block(CALL_TIMEOUT).getValue();
  }

  private void checkEvents() {
    report.check(
        "a published event reaches a streaming subscription",
        () -> {
          String topic = fresh("topic");
          BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
          // Open until the client closes: daprd 1.18.2 may panic if a subscription ends while it is
          // reading the answer to an event.
          preview.subscribeToEvents(PUBSUB, topic, remember(arrived), TypeRef.STRING);
          String event = null;
          // Published anew until it arrives: the subscription begins after the call that makes it.
          for (int attempt = 0; event == null && attempt < 30; attempt++) {
            dapr.publishEvent(PUBSUB, topic, "order 1").block(CALL_TIMEOUT);
            event = arrived.poll(500, TimeUnit.MILLISECONDS);
          }
          expect("event", String.valueOf(event), "order 1");
        });
  }

  private static SubscriptionListener<String> remember(BlockingQueue<String> arrived) {
    return new SubscriptionListener<>() {
      @Override
      public Mono<Status> onEvent(CloudEvent<String> event) {
        arrived.add(event.getData());
        return Mono.just(Status.SUCCESS);
      }

      @Override
      public void onError(RuntimeException error) {
        arrived.add(error.toString());
      }
    };
  }

  private void checkSurroundings() {
    report.check(
        "a secret is read",
        () -> {
          String key = System.getenv("SECRET_KEY");
          expect("secret", dapr.getSecret(SECRET_STORE, key).block(CALL_TIMEOUT).get(key), System.getenv("SECRET_VALUE"));
        });
    report.check(
        "the metadata names daprd's components",
        () -> {
          DaprMetadata metadata = dapr.getMetadata().block(CALL_TIMEOUT);
          expect("app ID", metadata.getId(), System.getenv("DAPR_APP_ID"));
          Set<String> named =
              metadata.getComponents().stream().map(ComponentMetadata::getName).collect(Collectors.toSet());
          for (String name : STATE_STORES) {
            expect(name + " is among the components", named.contains(name), true);
          }
          expect("secrets and pub/sub are", named.containsAll(List.of(SECRET_STORE, PUBSUB)), true);
        });
    report.check("the SDK's health check passes", () -> dapr.waitForSidecar(15_000).block(CALL_TIMEOUT));
  }

  private static String fresh(String name) {
    return name + "-" + UUID.randomUUID();
  }
}
