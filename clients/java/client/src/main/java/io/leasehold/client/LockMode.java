package io.leasehold.client;

/** Whether others may hold the lock at the same time. */
public enum LockMode {
  /** One holder. */
  EXCLUSIVE,
  /** Any number of shared holders, and no exclusive one. */
  SHARED
}
