package io.leasehold.client;

import io.leasehold.v1.LockRef;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.RenewLockRequest;
import io.leasehold.v1.UnlockRequest;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;

/** Builds requests, and checks what the client can check. */
final class Requests {
  private static final Duration NOT_AT_ALL = Duration.ZERO;

  private Requests() {}

  static LockRequest lock(String store, String name, LockOptions options) {
    named("name", name);
    options.namespace().forEach(segment -> text("namespace", segment));
    text("label", options.label());
    text("requestId", options.requestId());
    LockRequest.Builder request =
        LockRequest.newBuilder()
            .setStoreName(store)
            .setResourceId(name)
            .setMode(mode(options.mode()))
            .addAllNamespace(options.namespace())
            .setLabel(options.label())
            .setRequestId(options.requestId());
    options.ttl().map(ttl -> positive("ttl", ttl)).ifPresent(request::setTtl);
    options.maxHold().map(hold -> positive("maxHold", hold)).ifPresent(request::setMaxHold);
    options.stopBefore().ifPresent(time -> stopBefore(time, options.maxHold()));
    options
        .waitLimit()
        .ifPresent(
            wait -> {
              notNegative("wait", wait);
              if (wait.isZero()) {
                request.setImmediate(true);
              } else {
                request.setWait(proto(wait));
              }
            });
    return request.build();
  }

  /** For {@code tryLock}, which does not wait. */
  static LockOptions notWaiting(LockOptions options) {
    if (options.waitLimit().isPresent()) {
      throw invalid("wait is not an option of tryLock, which does not wait");
    }
    return options.toBuilder().wait(NOT_AT_ALL).build();
  }

  static UnlockRequest unlock(LockRequest lock, String lockId) {
    return UnlockRequest.newBuilder()
        .setStoreName(lock.getStoreName())
        .setResourceId(lock.getResourceId())
        .addAllNamespace(lock.getNamespaceList())
        .setLockId(lockId)
        .build();
  }

  static LockRef reference(LockRequest lock, String lockId) {
    return LockRef.newBuilder()
        .setStoreName(lock.getStoreName())
        .setResourceId(lock.getResourceId())
        .addAllNamespace(lock.getNamespaceList())
        .setLockId(lockId)
        .build();
  }

  static RenewLockRequest.Builder renewal(LockRequest lock, String lockId) {
    return RenewLockRequest.newBuilder()
        .setStoreName(lock.getStoreName())
        .setResourceId(lock.getResourceId())
        .addAllNamespace(lock.getNamespaceList())
        .setLockId(lockId);
  }

  static com.google.protobuf.Duration positive(String option, Duration value) {
    if (value.isNegative() || value.isZero()) {
      throw invalid(option + " must be positive, not " + value);
    }
    return proto(value);
  }

  /** Refuses a missing name. */
  static String named(String option, String value) {
    if (value == null || value.isEmpty()) {
      throw invalid(option + " must not be " + (value == null ? "null" : "empty"));
    }
    text(option, value);
    return value;
  }

  /** Refuses what UTF-8 cannot encode and protobuf would replace: two names could become one. */
  private static void text(String option, String value) {
    if (!StandardCharsets.UTF_8.newEncoder().canEncode(value)) {
      throw invalid(option + " must not have half of a surrogate pair");
    }
  }

  private static io.leasehold.v1.LockMode mode(LockMode mode) {
    return switch (mode) {
      case EXCLUSIVE -> io.leasehold.v1.LockMode.LOCK_MODE_EXCLUSIVE;
      case SHARED -> io.leasehold.v1.LockMode.LOCK_MODE_SHARED;
    };
  }

  private static void notNegative(String option, Duration value) {
    if (value.isNegative()) {
      throw invalid(option + " must not be negative, but is " + value);
    }
  }

  private static void stopBefore(Duration value, Optional<Duration> maxHold) {
    notNegative("stopBefore", value);
    if (maxHold.isPresent() && value.compareTo(maxHold.get()) >= 0) {
      throw invalid("stopBefore is not shorter than maxHold, which is " + seconds(maxHold.get()));
    }
  }

  static LeaseholdException invalid(String message) {
    return new LeaseholdException(LeaseholdException.INVALID_REQUEST, message, null);
  }

  private static com.google.protobuf.Duration proto(Duration duration) {
    return com.google.protobuf.Duration.newBuilder()
        .setSeconds(duration.getSeconds())
        .setNanos(duration.getNano())
        .build();
  }

  /** A duration for people: {@code 0.5 s}. */
  static String seconds(Duration duration) {
    BigDecimal seconds =
        BigDecimal.valueOf(duration.getSeconds()).add(BigDecimal.valueOf(duration.getNano(), 9));
    return seconds.stripTrailingZeros().toPlainString() + " s";
  }

  static Duration duration(com.google.protobuf.Duration duration) {
    return Duration.ofSeconds(duration.getSeconds(), duration.getNanos());
  }
}
