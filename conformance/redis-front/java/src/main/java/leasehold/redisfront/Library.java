package leasehold.redisfront;

import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.function.Function;

/** What the checks need of a lock library. */
record Library(String name, Function<InetSocketAddress, Client> connect) {

  /** The library with its own connections. */
  interface Client {
    /** Tries once. Null if the lock is another's. */
    Held take(String key, Duration ttl) throws Exception;

    /** Asks the server how long the lock lasts, in milliseconds. */
    long pttl(String key);
  }

  /** A lock that was granted. The calls return whether it was still the caller's. */
  interface Held {
    boolean extend(Duration ttl) throws Exception;

    boolean release() throws Exception;
  }
}
