package io.leasehold.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import io.leasehold.v1.LockRequest;
import java.util.Map;
import java.util.Set;

/**
 * The content of a gRPC error.
 *
 * @param reason the reason of its {@code ErrorInfo}, else the name of its code
 * @param metadata the metadata of its {@code ErrorInfo}
 * @param described whether it has an {@code ErrorInfo}
 * @param message for people
 * @param origin the error
 */
record Failure(
    String reason,
    Map<String, String> metadata,
    boolean described,
    String message,
    Throwable origin) {
  private static final Set<String> REFUSALS = Set.of("RESOURCE_LOCKED", "WAIT_DEADLINE");

  static Failure of(Throwable error) {
    Status status = Status.fromThrowable(error);
    String message = status.getDescription() == null ? error.toString() : status.getDescription();
    com.google.rpc.Status details = StatusProto.fromThrowable(error);
    if (details != null) {
      for (Any detail : details.getDetailsList()) {
        if (detail.is(ErrorInfo.class)) {
          try {
            ErrorInfo info = detail.unpack(ErrorInfo.class);
            return new Failure(info.getReason(), info.getMetadataMap(), true, message, error);
          } catch (InvalidProtocolBufferException ignored) {
            break; // then the gRPC code is the reason
          }
        }
      }
    }
    return new Failure(status.getCode().name(), Map.of(), false, message, error);
  }

  /** Returns the error of a call. */
  LeaseholdException asException() {
    return new LeaseholdException(reason, message, origin);
  }

  /** Returns the error of a lock that was not acquired. */
  LeaseholdException asException(LockRequest request, SidecarAddress address) {
    if (REFUSALS.contains(reason)) {
      String holder = metadata.get("holder");
      return new NotAcquiredException(reason, refusal(request, holder), holder, origin);
    }
    if (described || !reason.equals(LeaseholdException.UNAVAILABLE)) {
      return asException();
    }
    return new LeaseholdException(reason, address.unreachable(message, origin), origin);
  }

  private String refusal(LockRequest request, String holder) {
    String lock = "the lock \"" + request.getResourceId() + "\"";
    boolean known = holder != null && !holder.isEmpty();
    if (reason.equals("RESOURCE_LOCKED")) {
      return lock + " is held by " + (known ? holder : "somebody else");
    }
    String limit =
        request.hasWait()
            ? " within " + Requests.seconds(Requests.duration(request.getWait()))
            : ": " + message;
    return lock + " was not acquired" + limit + (known ? "; it is held by " + holder : "");
  }

  /** Returns the loss, for the end of the stream of a lock that is held. */
  Loss asLoss() {
    return switch (described ? reason : "") {
      case "LOCK_LOST", "LOCK_NOT_FOUND" -> new Loss(cause(metadata.get("cause")), message, origin);
      case "SHUTTING_DOWN" -> new Loss(LossCause.SHUTTING_DOWN, message, origin);
      default -> new Loss(LossCause.DISCONNECTED, message, origin);
    };
  }

  /** Whether a call was refused because the lock that it names is not held any more. */
  boolean meansLoss() {
    return described && (reason.equals("LOCK_LOST") || reason.equals("LOCK_NOT_FOUND"));
  }

  static LossCause cause(String name) {
    return name == null || name.isEmpty() ? LossCause.ENDED : LossCause.named(name);
  }
}
