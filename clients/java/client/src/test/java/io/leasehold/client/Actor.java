package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** A thread of its own that does something, which may be interrupted. */
final class Actor<T> {
  private final CompletableFuture<T> outcome = new CompletableFuture<>();
  private final Thread thread;
  private volatile boolean interruptedAtEnd;

  Actor(Callable<T> part) {
    thread =
        new Thread(
            () -> {
              try {
                T result = part.call();
                interruptedAtEnd = Thread.interrupted();
                outcome.complete(result);
              } catch (Throwable error) {
                interruptedAtEnd = Thread.interrupted();
                outcome.completeExceptionally(error);
              }
            });
    thread.setDaemon(true);
    thread.start();
  }

  void interrupt() {
    thread.interrupt();
  }

  boolean isDone() {
    return outcome.isDone();
  }

  /** Whether the thread's interrupt flag was set when it ended. */
  boolean interruptedAtEnd() {
    return interruptedAtEnd;
  }

  T result() throws Exception {
    return outcome.get(Eventually.PATIENCE.toSeconds(), TimeUnit.SECONDS);
  }

  /** The error by which it ends. */
  <E extends Throwable> E failure(Class<E> type) {
    ExecutionException failed = assertThrows(ExecutionException.class, this::result);
    assertNotNull(failed.getCause());
    if (!type.isInstance(failed.getCause())) {
      throw new AssertionError("not a " + type, failed.getCause());
    }
    return type.cast(failed.getCause());
  }

  /** Waits for a latch, with the usual patience. */
  static void await(CountDownLatch latch) throws InterruptedException {
    assertTrue(latch.await(Eventually.PATIENCE.toSeconds(), TimeUnit.SECONDS), "not in time");
  }

  /** Work that can only be ended by an interrupt. */
  static void workUntilInterrupted() throws InterruptedException {
    Thread.sleep(Eventually.PATIENCE.toMillis());
    throw new AssertionError("the work was not interrupted");
  }
}
