package io.leasehold.client;

import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedByInterruptException;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/**
 * A lock that is held until it is closed or lost. Not bound to a thread: all methods may be called
 * from any.
 *
 * <p>{@link #run} and {@link #call} stop their work when the lock is lost. Without them a lock can
 * only report the loss: by {@link #check}, {@link #isLost} and {@link #onLost}, and when it is
 * closed.
 */
public final class HeldLock implements AutoCloseable {
  private final LockSession session;
  private final Reentrancy.Entry entry;
  private final AtomicBoolean ended = new AtomicBoolean();
  private volatile boolean reported;

  HeldLock(LockSession session, Reentrancy.Entry entry) {
    this.session = session;
    this.entry = entry;
  }

  /**
   * Returns the fencing token: positive, and greater than that of every earlier holder of the lock.
   * Pass it to what the lock guards, and refuse a smaller one there.
   *
   * @return the token
   */
  public long token() {
    return session.grant().getFencingToken();
  }

  /**
   * Returns the name of the lock.
   *
   * @return the name that it was taken by
   */
  public String resource() {
    return session.resource();
  }

  /**
   * Returns the proof of ownership. A secret: anybody who has it can unlock.
   *
   * @return the lock ID
   */
  public String lockId() {
    return session.grant().getLockId();
  }

  /**
   * Returns the public name of this grant, as inspection shows it.
   *
   * @return the grant ID; empty if the store has no inspection
   */
  public String grantId() {
    return session.grant().getGrantId();
  }

  /**
   * Returns how long until the work is cancelled unless the lock is confirmed before. Reads the
   * clock, and makes no call.
   *
   * @return 0 once the lock is lost or unlocked
   */
  public Duration validFor() {
    return ended.get() ? Duration.ZERO : session.validFor();
  }

  /**
   * Throws unless the lock is held. Reads the clock, and makes no call, so it may be called often.
   *
   * @throws LockLostException if it is lost or unlocked
   */
  public void check() {
    if (ended.get() || !session.isHeld()) {
      throw lost();
    }
  }

  /**
   * Returns whether the lock was lost. Reads the clock, and makes no call.
   *
   * @return false also after it was unlocked
   */
  public boolean isLost() {
    return session.loss().isPresent();
  }

  /**
   * Calls a function once, on a thread of its own, when the lock is lost; at once if it was lost
   * before. It is not called for a lock that is unlocked.
   *
   * @param listener is given the error that {@link #close} is going to throw
   */
  public void onLost(Consumer<LockLostException> listener) {
    session.onLost(listener);
  }

  /**
   * Interrupts the calling thread when the lock is lost, until the returned scope is closed. For
   * work that is called by somebody else; otherwise use {@link #run} or {@link #call}.
   *
   * @return to be closed by the same thread when the work has ended
   */
  public InterruptOnLoss interruptOnLoss() {
    return InterruptOnLoss.open(session);
  }

  /**
   * Does work on the calling thread, which is interrupted when the lock is lost. Like {@link
   * #call}, without a result.
   *
   * @param work the work
   * @param <E> what it throws
   * @throws E if the work fails
   * @throws LockLostException if the lock was lost before or meanwhile
   */
  public <E extends Exception> void run(Work.Action<E> work) throws E {
    call(
        () -> {
          work.run();
          return null;
        });
  }

  /**
   * Does work on the calling thread, which is interrupted when the lock is lost.
   *
   * <p>If the lock is lost meanwhile, this returns when the work has ended, and throws {@link
   * LockLostException}, whatever the work returned. If the work throws an error of its own, that is
   * thrown, and has the loss among its {@linkplain Throwable#getSuppressed() suppressed} ones. The
   * error by which it reports that it was interrupted is not its own: an {@link
   * InterruptedException}, {@link ClosedByInterruptException} or {@link InterruptedIOException},
   * one of {@link #check}, or anything with such a cause. It is among those that the {@link
   * LockLostException} suppresses.
   *
   * <p>The interrupt of the loss is cleared afterwards; one by somebody else is not.
   *
   * @param work the work
   * @param <T> its result
   * @param <E> what it throws
   * @return what the work returned
   * @throws E if the work fails
   * @throws LockLostException if the lock was lost before or meanwhile
   */
  public <T, E extends Exception> T call(Work.Task<T, E> work) throws E {
    T result = null;
    Throwable failure = null;
    InterruptOnLoss interrupt = interruptOnLoss();
    try {
      check();
      result = work.call();
    } catch (Throwable thrown) {
      failure = thrown;
    }
    Optional<Loss> loss = session.loss();
    interrupt.close(failure);
    if (loss.isEmpty()) {
      if (failure != null) {
        throw HeldLock.<E>unchecked(failure);
      }
      return result;
    }
    reported = true;
    LockLostException lost = session.exception(loss.get());
    if (failure == null) {
      throw lost;
    }
    if (failure instanceof LockLostException own && own.isOf(resource(), token())) {
      throw own;
    }
    if (reportsInterrupt(failure)) {
      lost.addSuppressed(failure);
      throw lost;
    }
    failure.addSuppressed(lost);
    throw HeldLock.<E>unchecked(failure);
  }

  private boolean reportsInterrupt(Throwable failure) {
    int depth = 0;
    for (Throwable at = failure; at != null && depth < 50; at = at.getCause(), depth++) {
      if (at instanceof InterruptedException
          || at instanceof ClosedByInterruptException
          || (at instanceof InterruptedIOException && !(at instanceof SocketTimeoutException))
          || (at instanceof LockLostException own && own.isOf(resource(), token()))) {
        return true;
      }
    }
    return false;
  }

  @SuppressWarnings("unchecked")
  private static <E extends Exception> E unchecked(Throwable failure) throws E {
    throw (E) failure; // what the work throws is an E or unchecked
  }

  /**
   * Sets a new {@code maxHold}: the lock is released this long from now, whatever the app does. It
   * replaces the previous limit, and the default of {@code stopBefore} follows it. Takes at most 5
   * s, and is not interruptible.
   *
   * @param maxHold positive
   * @throws LockLostException if the lock is lost or unlocked
   * @throws LeaseholdException if the sidecar refuses it or does not answer; nothing is changed
   *     then, unless only the answer was lost
   */
  public void limit(Duration maxHold) {
    check();
    session
        .limit(maxHold)
        .ifPresent(
            loss -> {
              throw session.exception(loss);
            });
  }

  /**
   * Ends the renewal: the lock lasts for this long from now, even if this process ends, and this
   * handle is closed. A lock that was taken several times by {@code reentrant} is detached for all.
   * Takes at most 5 s, and is not interruptible.
   *
   * @param ttl positive; a store may round it up
   * @throws LockLostException if the lock is lost or unlocked
   * @throws LeaseholdException if the sidecar refuses it or does not answer; the lock is unlocked
   *     then, unless only the answer was lost
   */
  public void detach(Duration ttl) {
    Requests.positive("ttl", ttl);
    if (!ended.compareAndSet(false, true)) {
      throw lost();
    }
    if (entry != null) {
      entry.forget();
    }
    session
        .detach(ttl)
        .ifPresent(
            loss -> {
              throw session.exception(loss);
            });
  }

  /**
   * Unlocks. Takes at most 5 s, is not interruptible, and keeps an interrupt for the caller. A
   * failed Unlock is not an error, because the end of the stream then releases the lock. Does
   * nothing if this handle is closed already.
   *
   * @throws LockLostException if the lock was lost before, unless {@link #run} or {@link #call} has
   *     thrown that
   */
  public void unlock() {
    if (!ended.compareAndSet(false, true)) {
      return;
    }
    Optional<Loss> loss = leave() ? session.end() : session.loss();
    if (loss.isPresent() && !reported) {
      throw session.exception(loss.get());
    }
  }

  /** Unlocks; the same as {@link #unlock}. */
  @Override
  public void close() {
    unlock();
  }

  private boolean leave() {
    return entry == null || entry.leave();
  }

  private LockLostException lost() {
    return session.exception(
        session.loss().orElse(new Loss(LossCause.ENDED, "it was unlocked", null)));
  }

  @Override
  public String toString() {
    return "HeldLock[" + resource() + ", token " + token() + "]";
  }
}
