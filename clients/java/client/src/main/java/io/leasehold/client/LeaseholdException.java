package io.leasehold.client;

/** The base class of all errors of this library. */
public class LeaseholdException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The reason of a request that is wrong, whether the client or the sidecar noticed it. */
  static final String INVALID_REQUEST = "INVALID_REQUEST";

  /** The reason of a sidecar that does not answer. */
  static final String UNAVAILABLE = "UNAVAILABLE";

  /** See {@link #reason}. */
  private final String reason;

  LeaseholdException(String reason, String message, Throwable cause) {
    super(message, cause);
    this.reason = reason;
  }

  /**
   * Returns what went wrong, for programs: the reason of the sidecar's {@code
   * google.rpc.ErrorInfo}, or else the name of the gRPC code.
   *
   * @return such as {@code STORE_NOT_FOUND} or {@code UNAVAILABLE}
   */
  public String reason() {
    return reason;
  }
}
