package leasehold.redisfront;

import static leasehold.redisfront.Report.eventually;
import static leasehold.redisfront.Report.expect;
import static leasehold.redisfront.Stage.freshKey;

import java.time.Duration;
import java.util.concurrent.Callable;
import leasehold.redisfront.Library.Client;
import leasehold.redisfront.Library.Held;

/** The checks of every lock library, on any store. */
final class Checks {
  /** Far longer than a check takes, so that a lock does not end by its TTL. */
  static final Duration LONG = Duration.ofMinutes(1);

  /** Short enough to wait for; etcd grants no less than 2 s. */
  static final Duration SHORT = Duration.ofSeconds(1);

  private final Stage stage;
  private final Library library;

  Checks(Stage stage, Library library) {
    this.stage = stage;
    this.library = library;
  }

  void run(Report report) {
    String subject = library.name() + " on " + stage.backend;
    report.check(
        subject,
        "a held lock is refused to another, and granted after its release",
        this::exclusion);
    report.check(subject, "a lock ends at its TTL, and not before", this::expiry);
    report.check(
        subject,
        "an owner whose lock was lost changes nothing of the next owner's",
        this::lateOwner);
    report.check(subject, "an extension sets the TTL", this::extension);
    report.check(
        subject,
        "a lock whose grant was not answered has one holder, and becomes free",
        this::lostGrant);
    report.check(
        subject,
        "a lock whose extension was not answered is held until its release",
        this::lostExtension);
    report.check(subject, "a lock whose release was not answered is free", this::lostRelease);
    report.check(
        subject,
        "no two clients hold a lock at once, with replies lost in between",
        new Stress(stage, library)::run);
  }

  private Client direct() {
    return library.connect().apply(stage.direct);
  }

  private Client lossy() {
    return library.connect().apply(stage.lossy);
  }

  private void exclusion() throws Exception {
    String key = freshKey("exclusion");
    Client first = direct();
    Client second = direct();
    Held held = granted(first, key, LONG);
    expect("whether the other was granted", second.take(key, LONG) != null, false);
    expect("the release", held.release(), true);
    expect("the next release", granted(second, key, LONG).release(), true);
  }

  private void expiry() throws Exception {
    String key = freshKey("expiry");
    Client first = direct();
    Client second = direct();
    Granted granted = grantedForShort(first, key);
    takenWhenFree(second, key);
    if (System.nanoTime() < granted.earliestEnd()) {
      throw new AssertionError("the lock was granted to another before its TTL was over");
    }
  }

  private void lateOwner() throws Exception {
    String key = freshKey("late");
    Client first = direct();
    Client second = direct();
    Held late = grantedForShort(first, key).held();
    Held current = takenWhenFree(second, key);
    expect("the late owner's extension", late.extend(LONG), false);
    expect("the late owner's release", late.release(), false);
    expect("whether another try was granted", first.take(key, LONG) != null, false);
    expect("the owner's release", current.release(), true);
  }

  private void extension() throws Exception {
    String key = freshKey("extension");
    Client client = direct();
    Held held = granted(client, key, Duration.ofSeconds(20));
    expect("the extension", held.extend(LONG), true);
    long left = client.pttl(key);
    if (left <= 30_000 || left > 62_000) {
      throw new AssertionError("PTTL returned " + left + " ms after an extension to " + LONG);
    }
    expect("the release", held.release(), true);
  }

  private void lostGrant() throws Exception {
    String key = freshKey("lost-grant");
    Client lossy = lossy();
    Client direct = direct();
    stage.loseNext(key);
    Held held = tolerant(() -> lossy.take(key, Duration.ofSeconds(3)));
    expect("the number of lost replies", stage.lost(key), 1);
    if (held != null) {
      expect("whether another was granted", direct.take(key, LONG) != null, false);
      held.release();
    }
    takenWhenFree(direct, key);
  }

  private void lostExtension() throws Exception {
    String key = freshKey("lost-extension");
    Client lossy = lossy();
    Client direct = direct();
    Held held = granted(lossy, key, LONG);
    stage.loseNext(key);
    tolerant(() -> held.extend(LONG));
    expect("the number of lost replies", stage.lost(key), 1);
    expect("whether another was granted", direct.take(key, LONG) != null, false);
    expect("the release", held.release(), true);
    expect("the next release", granted(direct, key, LONG).release(), true);
  }

  private void lostRelease() throws Exception {
    String key = freshKey("lost-release");
    Client lossy = lossy();
    Client direct = direct();
    Held held = granted(lossy, key, LONG);
    stage.loseNext(key);
    tolerant(held::release);
    expect("the number of lost replies", stage.lost(key), 1);
    takenWhenFree(direct, key);
  }

  static Held granted(Client client, String key, Duration ttl) throws Exception {
    Held held = client.take(key, ttl);
    if (held == null) {
      throw new AssertionError(key + " was not granted");
    }
    return held;
  }

  /** A lock, and when it may end at the earliest. */
  private record Granted(Held held, long earliestEnd) {}

  /** A library refuses a grant that arrives after its TTL, which a busy machine makes happen. */
  private static Granted grantedForShort(Client client, String key) throws Exception {
    return eventually(
        key + " is granted",
        () -> {
          long earliestEnd = System.nanoTime() + SHORT.toNanos();
          Held held = client.take(key, SHORT);
          return held == null ? null : new Granted(held, earliestEnd);
        });
  }

  static Held takenWhenFree(Client client, String key) throws Exception {
    return eventually(key + " becomes free", () -> client.take(key, LONG));
  }

  /** Null where the library gave up on a reply that was lost. */
  static <T> T tolerant(Callable<T> call) {
    try {
      return call.call();
    } catch (Exception lost) {
      return null;
    }
  }
}
