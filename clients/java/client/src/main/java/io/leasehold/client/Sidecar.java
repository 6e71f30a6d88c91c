package io.leasehold.client;

import io.grpc.Channel;
import io.grpc.Context;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import io.leasehold.v1.CheckLocksRequest;
import io.leasehold.v1.CheckLocksResponse;
import io.leasehold.v1.LockRef;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LocksGrpc;
import io.leasehold.v1.LocksGrpc.LocksStub;
import io.leasehold.v1.RenewLockRequest;
import io.leasehold.v1.UnlockRequest;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The calls to the sidecar, and the one thread on which their answers and all timers run. */
final class Sidecar {
  /** How long the calls that end or change a lock may take. */
  private static final long CALL_SECONDS = 5;

  private final SidecarAddress address;
  private final LocksStub calls;
  private final ScheduledThreadPoolExecutor loop;
  private final Set<LockSession> sessions = ConcurrentHashMap.newKeySet();
  private final Runnable reconnect;
  private int connection;
  private volatile boolean closed;

  /**
   * @param reconnect makes new calls use another connection; open calls stay on the old one
   */
  Sidecar(Channel channel, SidecarAddress address, Runnable reconnect) {
    this.address = address;
    this.reconnect = reconnect;
    loop =
        new ScheduledThreadPoolExecutor(
            1,
            task -> {
              Thread thread = new Thread(task, "leasehold-client");
              thread.setDaemon(true);
              return thread;
            });
    // The thread ends when there is nothing to do, so the loop needs no shutdown, which would
    // refuse the last callbacks of gRPC.
    loop.setKeepAliveTime(10, TimeUnit.SECONDS);
    loop.allowCoreThreadTimeOut(true);
    loop.setRemoveOnCancelPolicy(true);
    calls = LocksGrpc.newStub(channel).withExecutor(loop);
  }

  SidecarAddress address() {
    return address;
  }

  Executor loop() {
    return loop;
  }

  long now() {
    return SuspensionClock.now();
  }

  Future<?> after(long nanos, Runnable task) {
    return loop.schedule(task, nanos, TimeUnit.NANOSECONDS);
  }

  /** Opens the stream of a lock, outside of the caller's context. */
  void openStream(LockRequest request, LockSession session) {
    if (closed) {
      throw closedError();
    }
    sessions.add(session);
    Context.ROOT.run(() -> calls.lockStream(request, session));
    session.opened();
    if (closed) {
      session.clientClosed();
    }
  }

  /** The number of the connection that new calls use. */
  synchronized int connection() {
    return connection;
  }

  /** Replaces a connection that has not answered, unless that was done. */
  synchronized void replace(int silent) {
    if (silent == connection) {
      connection++;
      reconnect.run();
    }
  }

  void forget(LockSession session) {
    sessions.remove(session);
  }

  /** Asks about a lock. The answer completes on the loop. */
  CompletableFuture<CheckLocksResponse> check(LockRef lock, long limitNanos) {
    CheckLocksRequest request = CheckLocksRequest.newBuilder().addLocks(lock).build();
    return answer(
        calls.withDeadlineAfter(limitNanos, TimeUnit.NANOSECONDS), request, LocksStub::checkLocks);
  }

  /** Returns how it failed, if it did. */
  Optional<Failure> unlock(UnlockRequest request) {
    return uninterruptibly(answer(bounded(), request, LocksStub::unlock));
  }

  /** Returns how it failed, if it did. */
  Optional<Failure> renew(RenewLockRequest request) {
    return uninterruptibly(answer(bounded(), request, LocksStub::renewLock));
  }

  private LocksStub bounded() {
    return calls.withDeadlineAfter(CALL_SECONDS, TimeUnit.SECONDS);
  }

  boolean isClosed() {
    return closed;
  }

  static LeaseholdException closedError() {
    return new LeaseholdException("CANCELLED", "the client is closed", null);
  }

  void close() {
    closed = true;
    sessions.forEach(LockSession::clientClosed);
  }

  private interface Call<Q, R> {
    void start(LocksStub stub, Q request, StreamObserver<R> observer);
  }

  /** Starts a call outside of the caller's context, whose deadline or end must not end it. */
  private static <Q, R> CompletableFuture<R> answer(LocksStub stub, Q request, Call<Q, R> call) {
    CompletableFuture<R> answer = new CompletableFuture<>();
    StreamObserver<R> observer =
        new StreamObserver<>() {
          private R value;

          @Override
          public void onNext(R value) {
            this.value = value;
          }

          @Override
          public void onError(Throwable error) {
            answer.completeExceptionally(error);
          }

          @Override
          public void onCompleted() {
            answer.complete(value);
          }
        };
    Context.ROOT.run(() -> call.start(stub, request, observer));
    return answer;
  }

  /** Waits in spite of interrupts, and keeps them for the caller. */
  private static Optional<Failure> uninterruptibly(CompletableFuture<?> answer) {
    boolean interrupted = false;
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(CALL_SECONDS);
    try {
      while (true) {
        try {
          answer.get(end - System.nanoTime(), TimeUnit.NANOSECONDS);
          return Optional.empty();
        } catch (InterruptedException again) {
          interrupted = true;
        } catch (ExecutionException failed) {
          return Optional.of(Failure.of(failed.getCause()));
        } catch (TimeoutException late) {
          return Optional.of(Failure.of(Status.DEADLINE_EXCEEDED.asRuntimeException()));
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
