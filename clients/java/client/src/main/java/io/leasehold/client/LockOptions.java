package io.leasehold.client;

import static java.util.Objects.requireNonNull;

import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * How a lock is taken and kept. Immutable.
 *
 * <pre>{@code
 * var options = LockOptions.builder().wait(Duration.ofSeconds(10)).label("invoice run").build();
 * }</pre>
 *
 * <p>Values are checked when the lock is taken, by the client or by the sidecar. A wrong one is a
 * {@link LeaseholdException} with the reason {@code INVALID_REQUEST} that names the option.
 */
public final class LockOptions {
  private static final LockOptions DEFAULTS = builder().build();

  private final Duration wait;
  private final Duration ttl;
  private final LockMode mode;
  private final List<String> namespace;
  private final String label;
  private final Duration maxHold;
  private final String requestId;
  private final Duration stopBefore;
  private final boolean reentrant;

  private LockOptions(Builder from) {
    wait = from.wait;
    ttl = from.ttl;
    mode = from.mode;
    namespace = from.namespace;
    label = from.label;
    maxHold = from.maxHold;
    requestId = from.requestId;
    stopBefore = from.stopBefore;
    reentrant = from.reentrant;
  }

  /**
   * Returns the options of a lock for which nothing is set.
   *
   * @return the defaults
   */
  public static LockOptions defaults() {
    return DEFAULTS;
  }

  /**
   * Starts from the defaults.
   *
   * @return a builder
   */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * Starts from these options.
   *
   * @return a builder
   */
  public Builder toBuilder() {
    return new Builder(this);
  }

  Optional<Duration> waitLimit() {
    return Optional.ofNullable(wait);
  }

  Optional<Duration> ttl() {
    return Optional.ofNullable(ttl);
  }

  LockMode mode() {
    return mode;
  }

  List<String> namespace() {
    return namespace;
  }

  String label() {
    return label;
  }

  Optional<Duration> maxHold() {
    return Optional.ofNullable(maxHold);
  }

  String requestId() {
    return requestId;
  }

  Optional<Duration> stopBefore() {
    return Optional.ofNullable(stopBefore);
  }

  boolean reentrant() {
    return reentrant;
  }

  /** Collects options. Not safe for several threads. */
  public static final class Builder {
    private Duration wait;
    private Duration ttl;
    private LockMode mode = LockMode.EXCLUSIVE;
    private List<String> namespace = List.of();
    private String label = "";
    private Duration maxHold;
    private String requestId = "";
    private Duration stopBefore;
    private boolean reentrant;

    private Builder() {}

    private Builder(LockOptions from) {
      wait = from.wait;
      ttl = from.ttl;
      mode = from.mode;
      namespace = from.namespace;
      label = from.label;
      maxHold = from.maxHold;
      requestId = from.requestId;
      stopBefore = from.stopBefore;
      reentrant = from.reentrant;
    }

    /**
     * Sets how long {@code lock} waits. {@code tryLock} refuses it. The default is no limit.
     *
     * @param wait 0 or more; 0 means not to wait
     * @return this
     */
    public Builder wait(Duration wait) {
      this.wait = requireNonNull(wait, "wait");
      return this;
    }

    /**
     * Sets how long the lock lasts when nobody renews it. The sidecar renews it all the time, so
     * this is how long others wait when a sidecar dies. The default is the store's.
     *
     * @param ttl positive; stores have a smallest one (100 ms; etcd 2 s) and a greatest one
     * @return this
     */
    public Builder ttl(Duration ttl) {
      this.ttl = requireNonNull(ttl, "ttl");
      return this;
    }

    /**
     * Sets whether the lock is shared with others. The default is {@link LockMode#EXCLUSIVE}.
     *
     * @param mode the mode
     * @return this
     */
    public Builder mode(LockMode mode) {
      this.mode = requireNonNull(mode, "mode");
      return this;
    }

    /**
     * Sets the namespace of the name. The same name in another namespace is another lock. The
     * default is none.
     *
     * @param segments up to 16 of 1 to 128 bytes, the outermost first
     * @return this
     */
    public Builder namespace(String... segments) {
      this.namespace = List.of(segments);
      return this;
    }

    /**
     * Sets the last part of the holder name, which others can see. The default is none.
     *
     * @param label up to 128 bytes without control characters
     * @return this
     */
    public Builder label(String label) {
      this.label = requireNonNull(label, "label");
      return this;
    }

    /**
     * Has the lock released after this long, whatever the app does. The default is never.
     *
     * @param maxHold positive
     * @return this
     */
    public Builder maxHold(Duration maxHold) {
      this.maxHold = requireNonNull(maxHold, "maxHold");
      return this;
    }

    /**
     * Sets a secret by which a repeated request finds its own grant again and takes it over. The
     * default is none.
     *
     * @param requestId up to 256 bytes
     * @return this
     */
    public Builder requestId(String requestId) {
      this.requestId = requireNonNull(requestId, "requestId");
      return this;
    }

    /**
     * Sets how long before the safe deadline the work is cancelled: the time it has to stop. The
     * default is a tenth of the granted TTL or of {@code maxHold}, whichever is shorter, and at
     * most 5 s.
     *
     * @param stopBefore 0 or more, and shorter than {@code maxHold} and the granted TTL less the
     *     drift allowance of a twentieth and 20 ms
     * @return this
     */
    public Builder stopBefore(Duration stopBefore) {
      this.stopBefore = requireNonNull(stopBefore, "stopBefore");
      return this;
    }

    /**
     * Lets the same thread take the lock again. Both calls must set this. The inner one's other
     * options have no effect, but its mode must be that of the outer one; the lock is released when
     * the last of them is closed. The default is off: the second call waits for the first.
     *
     * @param reentrant whether it may
     * @return this
     */
    public Builder reentrant(boolean reentrant) {
      this.reentrant = reentrant;
      return this;
    }

    /**
     * Builds the options.
     *
     * @return the options
     */
    public LockOptions build() {
      return new LockOptions(this);
    }
  }
}
