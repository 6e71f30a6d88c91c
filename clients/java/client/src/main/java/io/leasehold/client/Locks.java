package io.leasehold.client;

import static java.util.Objects.requireNonNull;

import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/**
 * The locks of one store. Safe for any number of threads; an application needs one.
 *
 * <pre>{@code
 * try (var locks = Locks.of("lockstore");
 *     var lock = locks.lock("order-1", Duration.ofSeconds(10))) {
 *   lock.run(() -> charge(order, lock.token())); // interrupted if the lock is lost
 * }
 * }</pre>
 *
 * <p>All methods that take a lock throw {@link InterruptedException} if the calling thread is
 * interrupted while it waits; the request is then withdrawn.
 */
public final class Locks implements AutoCloseable {
  private static final Metadata.Key<String> API_TOKEN =
      Metadata.Key.of("dapr-api-token", Metadata.ASCII_STRING_MARSHALLER);

  private final String store;
  private final ManagedChannel ownChannel;
  private final Sidecar sidecar;
  private final Reentrancy reentrancy = new Reentrancy();

  private Locks(Builder from) {
    store = from.store;
    String token = from.apiToken;
    if (token == null) {
      token = from.environment.getOrDefault("DAPR_API_TOKEN", "");
    }
    Channel channel = from.channel;
    SidecarAddress address = SidecarAddress.ofChannel();
    if (channel == null) {
      boolean named = from.address != null;
      Endpoint endpoint =
          named ? Endpoint.parse("address", from.address) : Endpoint.of(from.environment);
      address = named ? SidecarAddress.ofCode(endpoint) : SidecarAddress.ofEnvironment(endpoint);
      ownChannel = endpoint.open(named ? "address" : "DAPR_GRPC_ENDPOINT");
      channel = ownChannel;
    } else {
      ownChannel = null;
    }
    if (!token.isEmpty()) {
      Metadata headers = new Metadata();
      headers.put(API_TOKEN, token);
      channel =
          ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
    }
    Runnable reconnect = ownChannel == null ? () -> {} : ownChannel::enterIdle;
    sidecar = new Sidecar(channel, address, reconnect);
  }

  /**
   * Uses the sidecar that the environment names, as {@link Builder} says. Nothing is connected yet.
   *
   * @param store the name of the lock component
   * @return the locks of that store
   * @throws LeaseholdException if {@code store} is empty or the environment's address is wrong
   */
  public static Locks of(String store) {
    return builder(store).build();
  }

  /**
   * Starts from the environment.
   *
   * @param store the name of the lock component
   * @return a builder
   * @throws LeaseholdException if {@code store} is empty
   */
  public static Builder builder(String store) {
    return new Builder(store);
  }

  /**
   * Takes a lock, without a limit for the wait.
   *
   * @param name not empty
   * @return the lock
   * @throws InterruptedException if the thread is interrupted while it waits
   * @throws LeaseholdException if the sidecar refuses the request or does not answer
   */
  public HeldLock lock(String name) throws InterruptedException {
    return lock(name, LockOptions.defaults());
  }

  /**
   * Takes a lock, and waits for it at most this long.
   *
   * @param name not empty
   * @param wait 0 or more; 0 means not to wait
   * @return the lock
   * @throws InterruptedException if the thread is interrupted while it waits
   * @throws NotAcquiredException if somebody else had the lock until the wait ended
   * @throws LeaseholdException if the sidecar refuses the request or does not answer
   */
  public HeldLock lock(String name, Duration wait) throws InterruptedException {
    return lock(name, LockOptions.builder().wait(wait).build());
  }

  /**
   * Takes a lock.
   *
   * @param name not empty
   * @param options how
   * @return the lock
   * @throws InterruptedException if the thread is interrupted while it waits
   * @throws NotAcquiredException if somebody else had the lock until the wait ended
   * @throws LeaseholdException if an option is wrong, the sidecar refuses the request or does not
   *     answer
   */
  public HeldLock lock(String name, LockOptions options) throws InterruptedException {
    var request = Requests.lock(store, name, options);
    if (options.reentrant()) {
      Optional<HeldLock> again = reentrancy.again(name, options);
      if (again.isPresent()) {
        return again.get();
      }
    }
    LockSession session = new LockSession(sidecar, request, options);
    session.acquire();
    return options.reentrant() ? reentrancy.first(session, options) : new HeldLock(session, null);
  }

  /**
   * Takes a lock if nobody else has it.
   *
   * @param name not empty
   * @return the lock, or empty
   * @throws InterruptedException if the thread is interrupted before the sidecar has answered
   * @throws LeaseholdException if the sidecar refuses the request otherwise, or does not answer
   *     within 10 s
   */
  public Optional<HeldLock> tryLock(String name) throws InterruptedException {
    return tryLock(name, LockOptions.defaults());
  }

  /**
   * Takes a lock if nobody else has it.
   *
   * @param name not empty
   * @param options how; without a {@code wait}
   * @return the lock, or empty
   * @throws InterruptedException if the thread is interrupted before the sidecar has answered
   * @throws LeaseholdException if an option is wrong, the sidecar refuses the request otherwise, or
   *     does not answer within 10 s
   */
  public Optional<HeldLock> tryLock(String name, LockOptions options) throws InterruptedException {
    try {
      return Optional.of(lock(name, Requests.notWaiting(options)));
    } catch (NotAcquiredException held) {
      return Optional.empty();
    }
  }

  /**
   * Takes a lock, does work as {@link HeldLock#run} does, and unlocks.
   *
   * @param name not empty
   * @param options how
   * @param work is given the lock
   * @param <E> what it throws
   * @throws E if the work fails
   * @throws InterruptedException if the thread is interrupted while it waits
   * @throws LockLostException if the lock was lost
   * @throws LeaseholdException as {@link #lock(String, LockOptions)} says
   */
  public <E extends Exception> void withLock(
      String name, LockOptions options, Work.LockedAction<E> work) throws E, InterruptedException {
    try (HeldLock lock = lock(name, options)) {
      lock.run(() -> work.run(lock));
    }
  }

  /**
   * Takes a lock, does work with a result as {@link HeldLock#call} does, and unlocks.
   *
   * @param name not empty
   * @param options how
   * @param work is given the lock
   * @param <T> its result
   * @param <E> what it throws
   * @return what the work returned
   * @throws E if the work fails
   * @throws InterruptedException if the thread is interrupted while it waits
   * @throws LockLostException if the lock was lost
   * @throws LeaseholdException as {@link #lock(String, LockOptions)} says
   */
  public <T, E extends Exception> T callWithLock(
      String name, LockOptions options, Work.LockedTask<T, E> work) throws E, InterruptedException {
    try (HeldLock lock = lock(name, options)) {
      return lock.call(() -> work.call(lock));
    }
  }

  /**
   * Like {@link #withLock}, if nobody else has the lock.
   *
   * @param name not empty
   * @param options how; without a {@code wait}
   * @param work is given the lock
   * @param <E> what it throws
   * @return whether the work was done
   * @throws E if the work fails
   * @throws InterruptedException if the thread is interrupted before the sidecar has answered
   * @throws LockLostException if the lock was lost
   * @throws LeaseholdException as {@link #tryLock(String, LockOptions)} says
   */
  public <E extends Exception> boolean tryWithLock(
      String name, LockOptions options, Work.LockedAction<E> work) throws E, InterruptedException {
    Optional<HeldLock> held = tryLock(name, options);
    if (held.isEmpty()) {
      return false;
    }
    try (HeldLock lock = held.get()) {
      lock.run(() -> work.run(lock));
    }
    return true;
  }

  /**
   * Closes the connection, unless the channel is the caller's. Locks that are still held are lost,
   * and released by the end of their streams; waits end with the reason {@code CANCELLED}.
   */
  @Override
  public void close() {
    sidecar.close();
    if (ownChannel != null) {
      ownChannel.shutdown();
    }
  }

  /**
   * Sets where the sidecar is. What is not set is taken from the environment: the address from
   * {@code DAPR_GRPC_ENDPOINT}, else 127.0.0.1 and {@code DAPR_GRPC_PORT}, else port 50001; the
   * token from {@code DAPR_API_TOKEN}.
   */
  public static final class Builder {
    private final String store;
    private Map<String, String> environment = System.getenv();
    private String address;
    private Channel channel;
    private String apiToken;

    private Builder(String store) {
      this.store = Requests.named("store", store);
    }

    /**
     * Sets the sidecar's gRPC address.
     *
     * @param address {@code host:port}, {@code http://…}, {@code https://…} for TLS, or {@code
     *     unix:…}
     * @return this
     */
    public Builder address(String address) {
      this.address = requireNonNull(address, "address");
      return this;
    }

    /**
     * Uses the caller's channel instead of an address. {@link Locks#close} leaves it open.
     *
     * @param channel to the sidecar
     * @return this
     */
    public Builder channel(Channel channel) {
      this.channel = requireNonNull(channel, "channel");
      return this;
    }

    /**
     * Sets the token that is sent as {@code dapr-api-token} with every call.
     *
     * @param apiToken empty for none, also if the environment has one
     * @return this
     */
    public Builder apiToken(String apiToken) {
      this.apiToken = requireNonNull(apiToken, "apiToken");
      return this;
    }

    Builder environment(Map<String, String> environment) {
      this.environment = environment;
      return this;
    }

    /**
     * Builds the locks. Nothing is connected yet.
     *
     * @return the locks
     * @throws LeaseholdException if the address is wrong
     */
    public Locks build() {
      return new Locks(this);
    }
  }
}
