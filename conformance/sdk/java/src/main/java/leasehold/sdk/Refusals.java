package leasehold.sdk;

import static leasehold.sdk.Report.expect;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.List;

/** Reads the errors of refused calls. */
final class Refusals {
  /** How many waits are tried; one must end with WAIT_DEADLINE. */
  private static final int WAITS_MAX = 5;

  private Refusals() {}

  static void expectRefusal(Runnable call, Status.Code code, String reason, String cause) {
    expect("refusal", refusal(call), List.of(code, reason, cause));
  }

  /** On a busy machine the client may end a call before the answer arrives, or its outcome is unknown. */
  static void expectWaitDeadline(Runnable wait) {
    List<?> late = List.of(Status.Code.DEADLINE_EXCEEDED, "", "");
    List<?> unknown = List.of(Status.Code.UNKNOWN, "OUTCOME_UNKNOWN", "");
    List<?> ended = refusal(wait);
    for (int waits = 1; waits < WAITS_MAX && (ended.equals(late) || ended.equals(unknown)); waits++) {
      ended = refusal(wait);
    }
    expect("end of the wait", ended, List.of(Status.Code.DEADLINE_EXCEEDED, "WAIT_DEADLINE", ""));
  }

  /** The code, reason and cause with which the call is refused. */
  private static List<?> refusal(Runnable call) {
    try {
      call.run();
    } catch (StatusRuntimeException refused) {
      ErrorInfo info = infoOf(refused);
      return List.of(refused.getStatus().getCode(), info.getReason(), info.getMetadataOrDefault("cause", ""));
    }
    throw new AssertionError("it was answered instead of refused");
  }

  static ErrorInfo infoOf(StatusRuntimeException refused) {
    return StatusProto.fromThrowable(refused).getDetailsList().stream()
        .filter(detail -> detail.is(ErrorInfo.class))
        .findFirst()
        .map(
            detail -> {
              try {
                return detail.unpack(ErrorInfo.class);
              } catch (InvalidProtocolBufferException malformed) {
                throw new AssertionError(malformed);
              }
            })
        .orElse(ErrorInfo.getDefaultInstance());
  }
}
