package leasehold.sdk;

import io.grpc.Context;
import io.leasehold.v1.LockAcquired;
import io.leasehold.v1.LockRequest;
import io.leasehold.v1.LockServerStream;
import io.leasehold.v1.LocksGrpc;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;

/** A lock whose life is its stream's. */
final class HeldLock implements AutoCloseable {
  private final Context.CancellableContext context;
  private final Iterator<LockServerStream> messages;
  private LockAcquired grant;

  private HeldLock(Context.CancellableContext context, Iterator<LockServerStream> messages) {
    this.context = context;
    this.messages = messages;
  }

  static HeldLock open(LocksGrpc.LocksBlockingStub locks, LockRequest request) {
    Context.CancellableContext context = Context.current().withCancellation();
    Context before = context.attach();
    try {
      Iterator<LockServerStream> messages =
          locks.withDeadlineAfter(Store.STREAM_TIMEOUT_S, TimeUnit.SECONDS).lockStream(request);
      HeldLock held = new HeldLock(context, messages);
      while (held.grant == null) {
        LockServerStream message = messages.next();
        if (message.hasLockAcquired()) {
          held.grant = message.getLockAcquired();
        }
      }
      return held;
    } finally {
      context.detach(before);
    }
  }

  LockAcquired grant() {
    return grant;
  }

  /** Reads the stream to its end, which throws if it is an error. */
  void rest() {
    while (messages.hasNext()) {
      LockServerStream message = messages.next();
      if (!message.hasPing()) {
        throw new AssertionError("the stream went on with " + message);
      }
    }
  }

  @Override
  public void close() {
    context.close();
  }
}
