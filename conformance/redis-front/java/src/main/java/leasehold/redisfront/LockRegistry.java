package leasehold.redisfront;

import static leasehold.redisfront.Checks.LONG;
import static leasehold.redisfront.Checks.granted;
import static leasehold.redisfront.Checks.tolerant;
import static leasehold.redisfront.Report.eventually;
import static leasehold.redisfront.Report.expect;
import static leasehold.redisfront.Stage.freshKey;

import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.FutureTask;
import leasehold.redisfront.Library.Client;
import leasehold.redisfront.Library.Held;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.integration.support.locks.DistributedLock;

/** Spring Integration's lock registry, as a spin lock. */
final class LockRegistry {
  private final Stage stage;
  private final Connections connections;
  private final String name;

  LockRegistry(Stage stage, Connections connections) {
    this.stage = stage;
    this.connections = connections;
    String version = Connections.version(RedisLockRegistry.class);
    name = "Spring Integration " + version + " over " + connections.name();
  }

  void run(Report report) {
    new Checks(stage, new Library(name, this::client)).run(report);
    String subject = name + " on " + stage.backend;
    report.check(
        subject, "a lock that its thread took twice ends with the second unlock", this::reentrant);
    report.check(subject, "a waiting tryLock is granted after the unlock", this::waits);
    report.check(
        subject, "a registry's second try finds the grant that was not answered", this::secondTry);
  }

  private RegistryClient client(InetSocketAddress address) {
    var factory = connections.open().apply(address);
    return new RegistryClient(factory, new RedisLockRegistry(factory, "locks"));
  }

  private void reentrant() throws Exception {
    String key = freshKey("reentrant");
    Client other = client(stage.direct);
    DistributedLock lock = client(stage.direct).registry.obtain(key);
    lock.lock(LONG);
    lock.lock(LONG);
    lock.unlock();
    expect("whether another was granted", other.take(key, LONG) != null, false);
    lock.unlock();
    granted(other, key, LONG);
  }

  private void waits() throws Exception {
    String key = freshKey("waits");
    Held held = granted(client(stage.direct), key, LONG);
    DistributedLock lock = client(stage.direct).registry.obtain(key);
    expect("the first try", lock.tryLock(), false);
    var waiting = new FutureTask<>(() -> lock.tryLock(Duration.ofSeconds(20), LONG));
    var waiter = new Thread(waiting);
    waiter.start();
    // A spin lock sleeps between its tries.
    eventually(
        "the waiting try has begun",
        () -> waiter.getState() == Thread.State.TIMED_WAITING ? true : null);
    expect("the release", held.release(), true);
    expect("the waiting try", waiting.get(), true);
  }

  private void secondTry() throws Exception {
    String key = freshKey("second-try");
    Client lossy = client(stage.lossy);
    Client direct = client(stage.direct);
    stage.loseNext(key);
    tolerant(() -> lossy.take(key, LONG));
    expect("the number of lost replies", stage.lost(key), 1);
    Held held = granted(lossy, key, LONG);
    expect("whether another was granted", direct.take(key, LONG) != null, false);
    expect("the release", held.release(), true);
  }

  private record RegistryClient(RedisConnectionFactory factory, RedisLockRegistry registry)
      implements Client {
    RegistryClient {
      registry.setRedisLockType(RedisLockType.SPIN_LOCK);
    }

    @Override
    public Held take(String key, Duration ttl) throws InterruptedException {
      DistributedLock lock = registry.obtain(key);
      return lock.tryLock(Duration.ZERO, ttl) ? new HeldLock(registry, key, lock) : null;
    }

    @Override
    public long pttl(String key) {
      return Connections.pttl(factory, "locks:" + key);
    }
  }

  private record HeldLock(RedisLockRegistry registry, String key, DistributedLock lock)
      implements Held {
    @Override
    public boolean extend(Duration ttl) {
      try {
        registry.renewLock(key, ttl);
        return true;
      } catch (IllegalStateException lost) {
        return false;
      }
    }

    @Override
    public boolean release() {
      try {
        lock.unlock();
        return true;
      } catch (ConcurrentModificationException lost) {
        return false;
      }
    }
  }
}
