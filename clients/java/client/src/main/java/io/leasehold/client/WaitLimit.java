package io.leasehold.client;

import io.leasehold.v1.LockRequest;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Gives up on a sidecar that does not answer the request for a lock. Runs on the loop. */
final class WaitLimit {
  /** A wait ends after this long without a message; pings come every 10 s. */
  private static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(30);

  /** How much longer than the wait an answer may take. */
  private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final Sidecar sidecar;
  private final Runnable giveUp;
  private final long end;
  private final boolean endless;
  private long heardAt;
  private Future<?> timer;
  private boolean stopped;

  WaitLimit(Sidecar sidecar, LockRequest request, long sentAt, Runnable giveUp) {
    this.sidecar = sidecar;
    this.giveUp = giveUp;
    // An immediate request has no wait, which is then 0 s.
    long wait = SafeDeadline.nanos(Requests.duration(request.getWait()));
    this.endless = !request.getImmediate() && !request.hasWait();
    this.end = sentAt + wait + GRACE_NANOS;
    this.heardAt = sentAt;
  }

  void heard() {
    heardAt = sidecar.now();
  }

  void watch() {
    if (stopped) {
      return;
    }
    long now = sidecar.now();
    long silence = heardAt + SILENCE_NANOS - now;
    long rest = endless ? silence : Math.min(silence, end - now);
    if (rest > 0) {
      timer = sidecar.after(rest, this::watch);
    } else {
      giveUp.run();
    }
  }

  void stop() {
    stopped = true;
    if (timer != null) {
      timer.cancel(false);
    }
  }
}
