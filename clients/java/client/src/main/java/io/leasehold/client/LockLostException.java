package io.leasehold.client;

/**
 * The lock is not held any more. The reason is {@code LOCK_LOST}. {@link HeldLock#check} also
 * throws it, with the cause {@link LossCause#ENDED}, after the caller's own unlock.
 */
public final class LockLostException extends LeaseholdException {
  private static final long serialVersionUID = 1L;

  /** See {@link #lossCause}. */
  private final LossCause lossCause;

  /** See {@link #resource}. */
  private final String resource;

  /** See {@link #token}. */
  private final long token;

  LockLostException(Loss loss, String resource, long token) {
    super(
        "LOCK_LOST",
        "the lock " + resource + " is lost (" + loss.cause() + "): " + loss.detail(),
        loss.origin());
    this.lossCause = loss.cause();
    this.resource = resource;
    this.token = token;
  }

  /**
   * Returns why the lock was lost. ({@link #getCause()} is the gRPC error that reported it, if
   * any.)
   *
   * @return the cause
   */
  public LossCause lossCause() {
    return lossCause;
  }

  /**
   * Returns the name of the lock.
   *
   * @return the name that it was taken by
   */
  public String resource() {
    return resource;
  }

  /**
   * Returns the fencing token that the lock had.
   *
   * @return the token
   */
  public long token() {
    return token;
  }

  boolean isOf(String resource, long token) {
    return this.token == token && this.resource.equals(resource);
  }
}
