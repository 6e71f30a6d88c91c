package io.leasehold.client;

import java.util.Optional;

/**
 * Somebody else had the lock until the wait ended. The reason is {@code WAIT_DEADLINE}, or {@code
 * RESOURCE_LOCKED} if the wait was 0.
 */
public final class NotAcquiredException extends LeaseholdException {
  private static final long serialVersionUID = 1L;

  /** See {@link #holder}; null if it is not known. */
  private final String holder;

  NotAcquiredException(String reason, String message, String holder, Throwable cause) {
    super(reason, message, cause);
    this.holder = holder;
  }

  /**
   * Returns who has the lock, for people: {@code APP/INSTANCE} or {@code APP/INSTANCE/LABEL}.
   *
   * @return the holder, if the sidecar named it
   */
  public Optional<String> holder() {
    return Optional.ofNullable(holder);
  }
}
