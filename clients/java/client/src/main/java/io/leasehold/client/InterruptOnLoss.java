package io.leasehold.client;

/**
 * While this is open, the loss of the lock interrupts the thread that opened it. {@link
 * HeldLock#run} and {@link HeldLock#call} do this for their work; open one yourself only where the
 * work is called by somebody else, as in a framework.
 *
 * <p>Closing it ends that, and clears the thread's interrupt flag if the loss had set it. An
 * interrupt by somebody else stays set. The one case that cannot be distinguished is an interrupt
 * by somebody else that comes while the loss's interrupt is still pending, because a thread has one
 * flag for both.
 */
public final class InterruptOnLoss implements AutoCloseable {
  private static final ThreadLocal<Interrupts> INTERRUPTS =
      ThreadLocal.withInitial(() -> new Interrupts(Thread.currentThread()));

  private final LockSession session;
  private final Interrupts interrupts;
  private boolean open = true;
  private boolean lost;

  private InterruptOnLoss(LockSession session, Interrupts interrupts) {
    this.session = session;
    this.interrupts = interrupts;
  }

  /** Begins to watch the lock for the calling thread. */
  static InterruptOnLoss open(LockSession session) {
    InterruptOnLoss scope = new InterruptOnLoss(session, INTERRUPTS.get());
    scope.interrupts.opened();
    session.watch(scope);
    return scope;
  }

  /** Interrupts the thread, if the scope is still open. */
  void interrupt() {
    synchronized (interrupts) {
      if (open && !lost) {
        lost = true;
        interrupts.set();
      }
    }
  }

  /** Ends the scope. From another thread than the one that opened it, no flag is cleared. */
  @Override
  public void close() {
    close(null);
  }

  /**
   * @param failure what the work threw, or null
   */
  void close(Throwable failure) {
    synchronized (interrupts) {
      if (!open) {
        return;
      }
      open = false;
      if (interrupts.closed(lost, failure instanceof InterruptedException)) {
        INTERRUPTS.remove();
      }
    }
    session.unwatch(this);
  }

  /** The interrupts of one thread by any number of locks. Guarded by itself. */
  private static final class Interrupts {
    private final Thread thread;
    private int scopes;
    private int losses;

    /** How often the thread was interrupted since none of its open locks was lost. */
    private int interrupts;

    private boolean foreign;

    Interrupts(Thread thread) {
      this.thread = thread;
    }

    synchronized void opened() {
      scopes++;
    }

    void set() {
      if (losses++ == 0) {
        foreign = thread.isInterrupted();
        interrupts = 0;
      }
      interrupts++;
      thread.interrupt();
    }

    /**
     * @param lost whether the scope that is closed has interrupted the thread
     * @param consumed whether the work ended by an InterruptedException, which clears the flag: if
     *     it is set again, another loss or somebody else has set it
     * @return whether this was the last scope of the thread that closes it
     */
    boolean closed(boolean lost, boolean consumed) {
      scopes--;
      boolean here = Thread.currentThread() == thread;
      if (lost) {
        losses--;
        if (here && losses == 0) {
          boolean set = Thread.interrupted();
          if (foreign || (set && consumed && interrupts == 1)) {
            thread.interrupt();
          }
          foreign = false;
        } else if (here) {
          thread.interrupt(); // a lock around this one is lost, too
        }
      }
      return here && scopes == 0;
    }
  }
}
