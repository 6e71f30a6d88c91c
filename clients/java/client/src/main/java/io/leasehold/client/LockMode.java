package io.leasehold.client;

/** What a lock allows besides itself. */
public enum LockMode {
  /** One holder. */
  EXCLUSIVE,
  /** Any number of shared holders, and no exclusive one. */
  SHARED
}
