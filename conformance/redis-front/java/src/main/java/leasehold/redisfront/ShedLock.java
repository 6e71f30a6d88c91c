package leasehold.redisfront;

import static leasehold.redisfront.Checks.LONG;
import static leasehold.redisfront.Checks.SHORT;
import static leasehold.redisfront.Checks.granted;
import static leasehold.redisfront.Checks.takenWhenFree;
import static leasehold.redisfront.Report.expect;
import static leasehold.redisfront.Stage.freshKey;

import java.net.InetSocketAddress;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import leasehold.redisfront.Library.Client;
import leasehold.redisfront.Library.Held;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import net.javacrumbs.shedlock.support.LockException;
import org.springframework.data.redis.connection.RedisConnectionFactory;

/** ShedLock's Redis provider, with and without safeUpdate. */
final class ShedLock {
  private final Stage stage;
  private final Connections connections;
  private final String name;

  ShedLock(Stage stage, Connections connections) {
    this.stage = stage;
    this.connections = connections;
    name = "ShedLock " + Connections.version(LockProvider.class) + " over " + connections.name();
  }

  void run(Report report) {
    new Checks(stage, new Library(name, this::client)).run(report);
    String subject = name + " on " + stage.backend;
    report.check(
        subject, "lockAtLeastFor keeps the lock after an early unlock", this::lockAtLeastFor);
    report.check(
        subject, "an unlock after lockAtMostFor leaves the next owner's lock", this::lateUnlock);
    report.check(subject, "a lock is extended without safeUpdate too", this::extendUnsafely);
    String refused = "an unlock without safeUpdate fails, and the lock stands";
    if (stage.isFront) {
      report.check(subject, refused, this::unlockUnsafely);
    } else {
      report.ignore(subject, refused, "Redis itself deletes the lock");
    }
  }

  private LockClient client(InetSocketAddress address) {
    return new LockClient(connections.open().apply(address), true);
  }

  private LockClient unsafeClient() {
    return new LockClient(connections.open().apply(stage.direct), false);
  }

  private void lockAtLeastFor() throws Exception {
    String key = freshKey("least");
    LockClient client = client(stage.direct);
    Optional<SimpleLock> lock = client.lock(key, LONG, Duration.ofSeconds(20));
    lock.orElseThrow().unlock();
    expect("whether another was granted", client(stage.direct).take(key, LONG) != null, false);
    long left = client.pttl(key);
    if (left > 22_000) {
      throw new AssertionError("PTTL returned " + left + " ms, of lockAtLeastFor 20 s");
    }
  }

  private void lateUnlock() throws Exception {
    String key = freshKey("late-unlock");
    SimpleLock late = client(stage.direct).lock(key, SHORT, Duration.ZERO).orElseThrow();
    Client second = client(stage.direct);
    Held current = takenWhenFree(second, key);
    late.unlock();
    expect("whether another was granted", second.take(key, LONG) != null, false);
    expect("the release", current.release(), true);
  }

  private void extendUnsafely() throws Exception {
    String key = freshKey("unsafe-extend");
    LockClient client = unsafeClient();
    expect("the extension", granted(client, key, Duration.ofSeconds(20)).extend(LONG), true);
    long left = client.pttl(key);
    if (left <= 30_000) {
      throw new AssertionError("PTTL returned " + left + " ms after an extension to " + LONG);
    }
  }

  private void unlockUnsafely() throws Exception {
    String key = freshKey("unsafe-unlock");
    LockClient client = unsafeClient();
    SimpleLock lock = client.lock(key, LONG, Duration.ZERO).orElseThrow();
    try {
      lock.unlock();
      throw new AssertionError("the unlock did not fail");
    } catch (LockException failed) {
      expect("whether another was granted", client.take(key, LONG) != null, false);
    }
  }

  private record LockClient(RedisConnectionFactory factory, LockProvider provider)
      implements Client {
    LockClient(RedisConnectionFactory factory, boolean isSafe) {
      this(factory, new RedisLockProvider.Builder(factory).safeUpdate(isSafe).build());
    }

    Optional<SimpleLock> lock(String key, Duration atMost, Duration atLeast) {
      Instant now = ClockProvider.now();
      return provider.lock(new LockConfiguration(now, key, atMost, atLeast));
    }

    @Override
    public Held take(String key, Duration ttl) {
      return lock(key, ttl, Duration.ZERO).map(HeldLock::new).orElse(null);
    }

    @Override
    public long pttl(String key) {
      return Connections.pttl(factory, "job-lock:default:" + key);
    }
  }

  private static final class HeldLock implements Held {
    // An extension makes a new lock; the previous one is not used any more.
    private SimpleLock current;

    HeldLock(SimpleLock lock) {
      current = lock;
    }

    @Override
    public boolean extend(Duration ttl) {
      Optional<SimpleLock> extended = current.extend(ttl, Duration.ZERO);
      extended.ifPresent(lock -> current = lock);
      return extended.isPresent();
    }

    @Override
    public boolean release() {
      try {
        current.unlock();
        return true;
      } catch (IllegalStateException notHeld) {
        return false;
      }
    }
  }
}
