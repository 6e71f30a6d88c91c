package leasehold.sdk;

import io.dapr.client.DaprClientBuilder;
import io.dapr.client.DaprPreviewClient;
import io.dapr.client.domain.UnlockResponseStatus;
import io.dapr.config.Properties;
import java.time.Duration;

/** The SDK's lock calls, each under a deadline. */
final class Locks implements AutoCloseable {
  private static final Duration CALL_TIMEOUT = Duration.ofSeconds(15);

  private final DaprPreviewClient client;

  private Locks(DaprPreviewClient client) {
    this.client = client;
  }

  /** Connects to the address in the SDK's usual environment variables. */
  static Locks connect() {
    return new Locks(new DaprClientBuilder().buildPreviewClient());
  }

  static Locks connectWithToken(String token) {
    return new Locks(
        new DaprClientBuilder().withPropertyOverride(Properties.API_TOKEN, token).buildPreviewClient());
  }

  boolean tryLock(String store, String resource, String owner, int expirySeconds) {
    return client.tryLock(store, resource, owner, expirySeconds).block(CALL_TIMEOUT);
  }

  UnlockResponseStatus unlock(String store, String resource, String owner) {
    return client.unlock(store, resource, owner).block(CALL_TIMEOUT);
  }

  @Override
  public void close() throws Exception {
    client.close();
  }
}
