package io.leasehold.client;

import java.io.FileNotFoundException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.UnknownHostException;

/**
 * Where the sidecar is, for messages.
 *
 * @param at the address with the word before it, or empty for a channel of the caller's
 * @param advice what to do if there is no sidecar
 */
record SidecarAddress(String at, String advice) {
  private static final int DEPTH = 50;

  static SidecarAddress ofChannel() {
    return new SidecarAddress("", "start \"leasehold sidecar\", or use another channel");
  }

  static SidecarAddress ofCode(Endpoint endpoint) {
    return new SidecarAddress(
        " at " + endpoint.target(), "start \"leasehold sidecar\", or set another address");
  }

  static SidecarAddress ofEnvironment(Endpoint endpoint) {
    return new SidecarAddress(
        " at " + endpoint.target(),
        "start \"leasehold sidecar\", or set DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT");
  }

  /** Returns the message that a request did not reach the sidecar, or that the connection broke. */
  String unreachable(String message, Throwable error) {
    Throwable at = error;
    boolean refused = false;
    for (int depth = 0; at.getCause() != null && depth < DEPTH; depth++) {
      at = at.getCause();
      refused |=
          at instanceof ConnectException
              || at instanceof NoRouteToHostException
              || at instanceof UnknownHostException
              || at instanceof FileNotFoundException; // of a Unix socket
    }
    if (!refused) {
      return "the connection to the sidecar" + at() + " failed: " + message;
    }
    return "no sidecar" + at() + ": " + plain(at.getMessage(), message) + "; " + advice;
  }

  /** The system's message, without the name of its call. */
  private static String plain(String detail, String otherwise) {
    if (detail == null || detail.isEmpty()) {
      return otherwise;
    }
    return detail
        .replaceFirst("^\\w+\\(\\.\\.\\) failed[^:]*: ", "")
        .replaceFirst("^Connection", "connection");
  }
}
