package io.leasehold.client;

import java.util.Locale;

/** Why a lock was lost. */
public enum LossCause {
  /** Nobody renewed it. */
  EXPIRED,
  /** Somebody ended it by force. */
  FORCED,
  /** The sidecar could not reach the store. */
  UNREACHABLE,
  /** It was held for as long as {@code maxHold} allows. */
  MAX_HOLD,
  /** The app failed its health check. */
  UNHEALTHY,
  /** The sidecar is stopping and has released the lock. */
  SHUTTING_DOWN,
  /** It was unlocked or taken over by another call, or the sidecar does not hold it any more. */
  ENDED,
  /** The stream broke: the sidecar died, or the connection was cut. */
  DISCONNECTED,
  /** Nobody confirmed the lock until the safe deadline less {@code stopBefore}. */
  UNCONFIRMED;

  /** The cause of that name in the protocol; {@link #ENDED} for one that is not known here. */
  static LossCause named(String name) {
    for (LossCause cause : values()) {
      if (cause.toString().equals(name)) {
        return cause;
      }
    }
    return ENDED;
  }

  /** Returns the name in the protocol: {@code forced}, {@code max_hold}. */
  @Override
  public String toString() {
    return name().toLowerCase(Locale.ROOT);
  }
}
