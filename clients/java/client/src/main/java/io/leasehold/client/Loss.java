package io.leasehold.client;

/**
 * The loss of a lock.
 *
 * @param cause why
 * @param detail why, for people
 * @param origin the gRPC error that reported it, or null
 */
record Loss(LossCause cause, String detail, Throwable origin) {
  static Loss unconfirmed() {
    return new Loss(LossCause.UNCONFIRMED, "the sidecar did not confirm it in time", null);
  }

  static Loss heldForMaxHold() {
    return new Loss(LossCause.MAX_HOLD, "it was held for as long as maxHold allows", null);
  }
}
