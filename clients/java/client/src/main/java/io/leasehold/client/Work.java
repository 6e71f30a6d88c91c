package io.leasehold.client;

/**
 * The shapes of work that runs under a lock. Lambdas fit them, so that callers need not name them.
 */
public final class Work {
  private Work() {}

  /**
   * Work without a result.
   *
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface Action<E extends Exception> {
    /**
     * Does the work.
     *
     * @throws E if it fails
     */
    void run() throws E;
  }

  /**
   * Work with a result.
   *
   * @param <T> the result
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface Task<T, E extends Exception> {
    /**
     * Does the work.
     *
     * @return the result
     * @throws E if it fails
     */
    T call() throws E;
  }

  /**
   * Work that is given its lock.
   *
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface LockedAction<E extends Exception> {
    /**
     * Does the work.
     *
     * @param lock the lock it runs under
     * @throws E if it fails
     */
    void run(HeldLock lock) throws E;
  }

  /**
   * Work with a result that is given its lock.
   *
   * @param <T> the result
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface LockedTask<T, E extends Exception> {
    /**
     * Does the work.
     *
     * @param lock the lock it runs under
     * @return the result
     * @throws E if it fails
     */
    T call(HeldLock lock) throws E;
  }
}
