package io.leasehold.client;

import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.leasehold.v1.LockAcquired;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LockServerStream;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * One lock, from its request to its end. All events of the network and the timers run on the
 * client's loop; the callers' threads only read, or end the lock.
 */
final class LockSession implements ClientResponseObserver<LockRequest, LockServerStream> {
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
  private final LossListeners listeners = new LossListeners();
  private final WaitLimit waitLimit;
  private final long sentAt;
  private final int connection;

  /** Null until the request is sent: gRPC throws if it sends on a cancelled call. */
  private volatile ClientCallStreamObserver<LockRequest> stream;

  private ClientCallStreamObserver<LockRequest> opening;
  private volatile LockAcquired grant;
  private volatile SafeDeadline deadline;
  private volatile Keeper keeper;

  LockSession(Sidecar sidecar, LockRequest request, LockOptions options) {
    this.sidecar = sidecar;
    this.request = request;
    this.options = options;
    this.sentAt = sidecar.now();
    this.connection = sidecar.connection();
    this.waitLimit = new WaitLimit(sidecar, request, sentAt, this::giveUp);
  }

  // ---- acquiring

  /** Takes the lock, and waits for it. An interrupt withdraws the request. */
  void acquire() throws InterruptedException {
    sidecar.openStream(request, this);
    sidecar.loop().execute(waitLimit::watch);
    try {
      granted.get();
    } catch (InterruptedException interrupted) {
      finish("the caller was interrupted", null);
      throw interrupted;
    } catch (ExecutionException failed) {
      throw (LeaseholdException) failed.getCause();
    }
    if (!deadline.leavesTime()) {
      finish("stopBefore leaves no time", null);
      throw Requests.invalid(
          "stopBefore is not shorter than the granted TTL of "
              + Requests.seconds(Requests.duration(grant.getTtl())));
    }
    if (deadline.remaining() <= 0) {
      finish("the lock came too late", null);
      throw new LeaseholdException(
          LeaseholdException.UNAVAILABLE,
          "the lock " + resource() + " was received after its safe deadline",
          null);
    }
  }

  private void giveUp() {
    sidecar.replace(connection);
    fail(
        new LeaseholdException(
            LeaseholdException.UNAVAILABLE,
            "the sidecar did not answer the request for " + resource(),
            null));
  }

  private void fail(LeaseholdException error) {
    if (state.compareAndSet(WAITING, ENDED)) {
      finish(error.getMessage(), null);
      granted.completeExceptionally(error);
    }
  }

  // ---- events of the stream

  @Override
  public void beforeStart(ClientCallStreamObserver<LockRequest> requests) {
    opening = requests;
  }

  /** The request is sent. If the lock ended before, its stream can only be cancelled here. */
  void opened() {
    stream = opening;
    if (state.get().phase() == Phase.ENDED) {
      cancelStream("the request ended while it was sent");
    }
  }

  @Override
  public void onNext(LockServerStream message) {
    waitLimit.heard();
    if (!message.hasLockAcquired() || state.get() != WAITING) {
      return;
    }
    LockAcquired acquired = message.getLockAcquired();
    Duration ttl = Requests.duration(acquired.getTtl());
    grant = acquired;
    deadline =
        new SafeDeadline(
            sidecar::now,
            sentAt + SafeDeadline.nanos(Requests.duration(acquired.getWaited())),
            ttl,
            options.maxHold().orElse(null),
            options.stopBefore().orElse(null));
    keeper = new Keeper(sidecar, this, deadline, ttl);
    if (state.compareAndSet(WAITING, HELD)) {
      waitLimit.stop();
      keeper.start();
      granted.complete(acquired);
    }
  }

  @Override
  public void onError(Throwable error) {
    Failure failure = Failure.of(error);
    if (state.get() == WAITING) {
      fail(
          sidecar.isClosed()
              ? Sidecar.closedError()
              : failure.asException(request, sidecar.address()));
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

  // ---- loss

  /** Records the loss, once. */
  void lose(Loss loss) {
    if (loss.cause().equals(LossCause.UNCONFIRMED)) {
      sidecar.replace(connection); // before anybody sees the loss and takes the next lock
    }
    if (!state.compareAndSet(HELD, new State(Phase.LOST, loss))) {
      return;
    }
    sidecar.loop().execute(this::stopTimers);
    listeners.report(() -> exception(loss));
  }

  private void stopTimers() {
    waitLimit.stop();
    if (keeper != null) {
      keeper.stop();
    }
  }

  /** Calls the listener at the loss, or now if that was before. */
  void onLost(Consumer<LockLostException> listener) {
    listeners.add(listener);
    reportIfLost();
  }

  /** Interrupts the scope's thread at the loss, or now if that was before. */
  void watch(InterruptOnLoss scope) {
    listeners.add(scope);
    reportIfLost();
  }

  private void reportIfLost() {
    loss().ifPresent(loss -> listeners.report(() -> exception(loss)));
  }

  void unwatch(InterruptOnLoss scope) {
    if (listeners.remove(scope) && state.get().phase() == Phase.LOST) {
      cancelStream("the work on the lost lock has ended");
    }
  }

  /** Whether the lock is held, by the clock too. */
  boolean isHeld() {
    if (state.get() == HELD && deadline.untilStop() <= 0) {
      lose(deadline.loss());
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

  /** Unlocks it, or closes the stream of a lost lock. Returns the loss, if there was one. */
  Optional<Loss> end() {
    isHeld();
    if (state.compareAndSet(HELD, ENDING)) {
      Optional<Failure> failure = sidecar.unlock(Requests.unlock(request, grant.getLockId()));
      finish("unlocked", failure.filter(Failure::meansLoss).map(Failure::asLoss).orElse(null));
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
    finish("detached", failure.filter(Failure::meansLoss).map(Failure::asLoss).orElse(null));
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
    long askedAt = sidecar.now();
    Optional<Failure> failure =
        sidecar.renew(
            Requests.renewal(request, grant.getLockId())
                .setTtl(grant.getTtl())
                .setMaxHold(limit)
                .build());
    if (failure.isEmpty()) {
      if (isHeld()) { // what was lost meanwhile stays lost
        deadline.limited(askedAt, maxHold);
      }
    } else if (failure.get().meansLoss()) {
      lose(failure.get().asLoss());
    } else if (!failure.get().described()) {
      deadline.perhapsLimited(askedAt, maxHold);
    }
    sidecar.loop().execute(keeper::watchTheDeadline);
    Optional<Loss> loss = loss();
    if (failure.isPresent() && loss.isEmpty()) {
      throw failure.get().asException();
    }
    return loss;
  }

  private void finish(String why, Loss loss) {
    state.set(loss == null ? ENDED : new State(Phase.ENDED, loss));
    sidecar.loop().execute(this::stopTimers);
    cancelStream(why);
    reportIfLost();
  }

  /** The client is closed: nothing more is confirmed, and the stream's end releases the lock. */
  void clientClosed() {
    fail(Sidecar.closedError());
    lose(new Loss(LossCause.DISCONNECTED, "the client was closed", null));
    cancelStream("the client was closed");
  }

  private void cancelStream(String why) {
    ClientCallStreamObserver<LockRequest> open = stream;
    if (open != null) {
      open.cancel(why, null);
    }
    sidecar.forget(this);
  }

  // ---- properties

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
