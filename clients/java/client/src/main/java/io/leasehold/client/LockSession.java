package io.leasehold.client;

import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.leasehold.v1.LockAcquired;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LockServerStream;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * One lock: from its request over its life to its end. All that the network and the timers tell
 * comes on the client's loop; the callers' threads only read, or end the lock.
 */
final class LockSession implements ClientResponseObserver<LockRequest, LockServerStream> {
  /** Without a message for so long (pings come every 10 s) a waiting stream is given up. */
  private static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(30);

  /** How much longer than the wait an answer may take. */
  private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private enum Phase {
    WAITING,
    HELD,
    /** Lost, and the stream is still open because the work may not have ended. */
    LOST,
    /** An Unlock is under way. */
    ENDING,
    ENDED
  }

  /** A phase, and the loss in LOST and after it. */
  private record State(Phase phase, Loss loss) {}

  private static final State WAITING = new State(Phase.WAITING, null);
  private static final State HELD = new State(Phase.HELD, null);
  private static final State ENDING = new State(Phase.ENDING, null);
  private static final State ENDED = new State(Phase.ENDED, null);

  private final Sidecar sidecar;
  private final LockRequest request;
  private final LockOptions options;
  private final AtomicReference<State> state = new AtomicReference<>(WAITING);
  private final CompletableFuture<LockAcquired> granted = new CompletableFuture<>();
  private final Set<InterruptOnLoss> watching = ConcurrentHashMap.newKeySet();
  private final List<Consumer<LockLostException>> listeners = new CopyOnWriteArrayList<>();
  private final long sentAt;
  private volatile ClientCallStreamObserver<LockRequest> stream;
  private volatile LockAcquired grant;
  private volatile SafeDeadline deadline;
  private long heardAt;
  private Future<?> timer;
  private Confirmation confirmation;

  LockSession(Sidecar sidecar, LockRequest request, LockOptions options) {
    this.sidecar = sidecar;
    this.request = request;
    this.options = options;
    this.sentAt = sidecar.now();
    this.heardAt = sentAt;
  }

  // ---- acquiring

  /** Takes the lock, and waits for it. An interrupt withdraws the request. */
  void acquire() throws InterruptedException {
    sidecar.openStream(request, this);
    sidecar.loop().execute(this::watchTheWait);
    try {
      granted.get();
    } catch (InterruptedException interrupted) {
      finish("the caller was interrupted", null);
      throw interrupted;
    } catch (ExecutionException failed) {
      throw (LeaseholdException) failed.getCause();
    }
    if (deadline.remaining() <= 0) {
      finish("the lock came too late", null);
      throw new LeaseholdException(
          LeaseholdException.UNAVAILABLE,
          "the lock " + resource() + " was received after its safe deadline",
          null);
    }
  }

  private void watchTheWait() {
    if (state.get() != WAITING) {
      return;
    }
    long now = sidecar.now();
    long limit = request.getImmediate() ? 0 : waitNanos();
    long rest = Math.min(heardAt + SILENCE_NANOS - now, sentAt + limit + GRACE_NANOS - now);
    if (rest > 0) {
      timer = sidecar.after(rest, this::watchTheWait);
    } else {
      fail(
          new LeaseholdException(
              LeaseholdException.UNAVAILABLE,
              "the sidecar did not answer the request for " + resource(),
              null));
    }
  }

  private long waitNanos() {
    return request.hasWait()
        ? SafeDeadline.nanos(Requests.duration(request.getWait()))
        : SafeDeadline.nanos(Duration.ofSeconds(Long.MAX_VALUE));
  }

  private void fail(LeaseholdException error) {
    if (state.compareAndSet(WAITING, ENDED)) {
      finish(error.getMessage(), null);
      granted.completeExceptionally(error);
    }
  }

  // ---- what the stream tells

  @Override
  public void beforeStart(ClientCallStreamObserver<LockRequest> requests) {
    stream = requests;
  }

  @Override
  public void onNext(LockServerStream message) {
    heardAt = sidecar.now();
    if (!message.hasLockAcquired() || state.get() != WAITING) {
      return;
    }
    LockAcquired acquired = message.getLockAcquired();
    Duration ttl = Requests.duration(acquired.getTtl());
    grant = acquired;
    deadline =
        new SafeDeadline(
            sidecar::now,
            sentAt,
            Requests.duration(acquired.getWaited()),
            ttl,
            options.stopBefore().orElse(null));
    if (state.compareAndSet(WAITING, HELD)) {
      cancelTimer();
      confirmation = new Confirmation(sidecar, this, ttl);
      confirmation.start();
      watchTheDeadline();
      granted.complete(acquired);
    }
  }

  @Override
  public void onError(Throwable error) {
    Failure failure = Failure.of(error);
    if (state.get() == WAITING) {
      fail(failure.asException());
    }
    lose(failure.asLoss());
  }

  @Override
  public void onCompleted() {
    if (state.get() == WAITING) {
      fail(
          new LeaseholdException(
              LeaseholdException.UNAVAILABLE,
              "the sidecar ended the request for " + resource(),
              null));
    }
    lose(new Loss(LossCause.ENDED, "it was ended or taken over by another call", null));
  }

  // ---- the local deadline

  /** Runs on the loop: at each confirmation, and when the deadline was to pass. */
  private void watchTheDeadline() {
    if (state.get() != HELD) {
      return;
    }
    long rest = deadline.untilStop();
    if (rest <= 0) {
      lose(Loss.unconfirmed());
    } else {
      cancelTimer();
      timer = sidecar.after(rest, this::watchTheDeadline);
    }
  }

  /** The sidecar vouched for the lock for this long from when it was asked. */
  void confirmed(long askedAt, Duration validFor) {
    if (!isHeld()) {
      return; // also if the clock says so: what was seen as lost stays lost
    }
    deadline.confirmed(askedAt, validFor);
    watchTheDeadline();
  }

  private void cancelTimer() {
    if (timer != null) {
      timer.cancel(false);
    }
  }

  // ---- loss

  /** Ends the belief in the lock, once. */
  void lose(Loss loss) {
    if (!state.compareAndSet(HELD, new State(Phase.LOST, loss))) {
      return;
    }
    sidecar.loop().execute(this::stopTimers);
    watching.forEach(InterruptOnLoss::interrupt);
    for (Consumer<LockLostException> listener : listeners) {
      if (listeners.remove(listener)) {
        tell(listener, loss);
      }
    }
  }

  private void stopTimers() {
    cancelTimer();
    if (confirmation != null) {
      confirmation.stop();
    }
  }

  private void tell(Consumer<LockLostException> listener, Loss loss) {
    Thread thread = new Thread(() -> listener.accept(exception(loss)), "leasehold-lost");
    thread.setDaemon(true);
    thread.start();
  }

  void onLost(Consumer<LockLostException> listener) {
    listeners.add(listener);
    Loss loss = state.get().loss();
    // A loss at this moment tells those that it finds: only one of the two removes it.
    if (loss != null && listeners.remove(listener)) {
      tell(listener, loss);
    }
  }

  /** Interrupts the scope's thread at a loss, also at one that was before. */
  void watch(InterruptOnLoss scope) {
    watching.add(scope);
    if (loss().isPresent()) {
      scope.interrupt();
    }
  }

  void unwatch(InterruptOnLoss scope) {
    watching.remove(scope);
    if (watching.isEmpty() && state.get().phase() == Phase.LOST) {
      cancelStream("the work on the lost lock has ended");
    }
  }

  /** Whether the lock is held, by the clock too. */
  boolean isHeld() {
    if (state.get() == HELD && deadline.untilStop() <= 0) {
      lose(Loss.unconfirmed());
    }
    return state.get() == HELD;
  }

  /** The loss, if it was lost; not if it was unlocked. */
  Optional<Loss> loss() {
    isHeld();
    return Optional.ofNullable(state.get().loss());
  }

  Duration validFor() {
    return isHeld() ? Duration.ofNanos(Math.max(0, deadline.untilStop())) : Duration.ZERO;
  }

  LockLostException exception(Loss loss) {
    return new LockLostException(loss, resource(), grant.getFencingToken());
  }

  // ---- ending

  /** Unlocks it, or closes the stream of a lost lock. Tells the loss, if there was one. */
  Optional<Loss> end() {
    isHeld();
    if (state.compareAndSet(HELD, ENDING)) {
      Optional<Failure> failure = sidecar.unlock(Requests.unlock(request, grant.getLockId()));
      finish("unlocked", failure.filter(Failure::tellsLoss).map(Failure::asLoss).orElse(null));
    } else {
      cancelStream("the lost lock is closed");
    }
    return Optional.ofNullable(state.get().loss());
  }

  /** Ends the renewal, so that the lock lasts for the TTL from now. */
  Optional<Loss> detach(Duration ttl) {
    com.google.protobuf.Duration rest = Requests.positive("ttl", ttl);
    isHeld();
    if (!state.compareAndSet(HELD, ENDING)) {
      return end();
    }
    Optional<Failure> failure =
        sidecar.renew(
            Requests.renewal(request, grant.getLockId()).setTtl(rest).setDetach(true).build());
    finish("detached", failure.filter(Failure::tellsLoss).map(Failure::asLoss).orElse(null));
    if (failure.isPresent() && state.get().loss() == null) {
      throw failure.get().asException();
    }
    return Optional.ofNullable(state.get().loss());
  }

  /** Sets a new limit from now on. */
  Optional<Loss> limit(Duration maxHold) {
    com.google.protobuf.Duration limit = Requests.positive("maxHold", maxHold);
    if (!isHeld()) {
      return loss();
    }
    Optional<Failure> failure =
        sidecar.renew(
            Requests.renewal(request, grant.getLockId())
                .setTtl(grant.getTtl())
                .setMaxHold(limit)
                .build());
    failure.filter(Failure::tellsLoss).map(Failure::asLoss).ifPresent(this::lose);
    if (failure.isPresent() && loss().isEmpty()) {
      throw failure.get().asException();
    }
    return loss();
  }

  private void finish(String why, Loss loss) {
    state.set(loss == null ? ENDED : new State(Phase.ENDED, loss));
    sidecar.loop().execute(this::stopTimers);
    cancelStream(why);
  }

  /** The client is closed: nothing more is confirmed, and the stream's end releases the lock. */
  void clientClosed() {
    fail(new LeaseholdException("CANCELLED", "the client was closed", null));
    lose(new Loss(LossCause.ENDED, "the client was closed", null));
    cancelStream("the client was closed");
  }

  private void cancelStream(String why) {
    ClientCallStreamObserver<LockRequest> open = stream;
    if (open != null) {
      open.cancel(why, null);
    }
    sidecar.forget(this);
  }

  // ---- what it is

  String resource() {
    return request.getResourceId();
  }

  LockRequest request() {
    return request;
  }

  LockAcquired grant() {
    return grant;
  }
}
