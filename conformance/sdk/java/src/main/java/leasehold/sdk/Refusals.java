package leasehold.sdk;

import static leasehold.sdk.Report.expect;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;

/** Reads the errors of refused calls. */
final class Refusals {
  private Refusals() {}

  static void expectRefusal(Runnable call, Status.Code code, String reason, String cause) {
    try {
      call.run();
    } catch (StatusRuntimeException refused) {
      ErrorInfo info = infoOf(refused);
      expect("code", refused.getStatus().getCode(), code);
      expect("reason", info.getReason(), reason);
      expect("cause", info.getMetadataOrDefault("cause", ""), cause);
      return;
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
