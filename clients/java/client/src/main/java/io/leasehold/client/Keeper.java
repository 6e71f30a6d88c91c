package io.leasehold.client;

import io.leasehold.v1.CheckLocksResponse;
import io.leasehold.v1.LockCheck;
import io.leasehold.v1.LockRef;
import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * Confirms a lock: asks the sidecar every sixth of the TTL whether it is still held, and counts it
 * as lost when the safe deadline passes. Runs on the loop.
 */
final class Keeper {
  private static final long LONGEST_ANSWER = TimeUnit.SECONDS.toNanos(5);

  private final Sidecar sidecar;
  private final LockSession session;
  private final SafeDeadline deadline;
  private final LockRef reference;
  private final long interval;
  private final long answerLimit;
  private final long retryInterval;
  private Future<?> next;
  private Future<?> alarm;
  private boolean stopped;

  Keeper(Sidecar sidecar, LockSession session, SafeDeadline deadline, Duration ttl) {
    long life = SafeDeadline.nanos(ttl);
    this.sidecar = sidecar;
    this.session = session;
    this.deadline = deadline;
    this.reference = Requests.reference(session.request(), session.grant().getLockId());
    this.interval = life / 6;
    this.answerLimit = Math.min(interval, LONGEST_ANSWER);
    this.retryInterval = life / 60;
  }

  void start() {
    next = sidecar.after(interval, this::ask);
    watchTheDeadline();
  }

  void stop() {
    stopped = true;
    if (next != null) {
      next.cancel(false);
    }
    if (alarm != null) {
      alarm.cancel(false);
    }
  }

  /** Sets the alarm to the deadline: when it has moved, and when the alarm goes off. */
  void watchTheDeadline() {
    if (stopped || !session.isHeld()) {
      return;
    }
    if (alarm != null) {
      alarm.cancel(false);
    }
    alarm = sidecar.after(Math.max(0, deadline.untilStop()), this::watchTheDeadline);
  }

  private void ask() {
    long askedAt = sidecar.now();
    sidecar
        .check(reference, answerLimit)
        .whenComplete(
            (response, error) -> {
              if (error == null) {
                answered(askedAt, response);
              } else {
                askAgain(askedAt, retryInterval);
              }
            });
  }

  private void answered(long askedAt, CheckLocksResponse response) {
    if (stopped) {
      return;
    }
    if (response.getLocksCount() != 1) {
      askAgain(askedAt, retryInterval);
      return;
    }
    LockCheck check = response.getLocks(0);
    if (check.hasValidFor()) {
      if (!session.isHeld()) {
        return; // the deadline has passed: an answer revives nothing
      }
      deadline.confirmed(askedAt, Requests.duration(check.getValidFor()));
      watchTheDeadline();
      askAgain(askedAt, interval);
    } else {
      String detail = "the sidecar answered " + check.getReason();
      session.lose(new Loss(Failure.cause(check.getCause()), detail, null));
    }
  }

  private void askAgain(long askedAt, long distance) {
    if (!stopped) {
      next = sidecar.after(Math.max(0, askedAt + distance - sidecar.now()), this::ask);
    }
  }
}
