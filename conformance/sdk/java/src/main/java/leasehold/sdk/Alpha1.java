package leasehold.sdk;

import static leasehold.sdk.Report.expect;

import io.dapr.client.domain.UnlockResponseStatus;
import io.dapr.exceptions.DaprException;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.Callable;

/**
 * Checks alpha1 with Dapr's Java SDK, against the sidecar that its usual environment variables name.
 * The checks are those of ../README.md.
 */
public final class Alpha1 {
  private static final String STORE = env("LOCK_STORE").orElse("locks");
  /** How much later than asked a backend may end a lock. */
  private static final long EXPIRY_LATENESS_MS = 5000;

  private final Report report = new Report("java");
  private final Locks locks;

  private Alpha1(Locks locks) {
    this.locks = locks;
  }

  /** Runs every check and exits with 1 if one failed. */
  public static void main(String[] args) throws Exception {
    int code;
    try (Locks locks = Locks.connect()) {
      Alpha1 alpha1 = new Alpha1(locks);
      alpha1.checkLife();
      alpha1.checkExpiry();
      alpha1.checkBadInput();
      alpha1.checkToken();
      alpha1.checkOutage();
      code = alpha1.report.close();
    }
    System.exit(code);
  }

  private void checkLife() {
    String resource = fresh("life");
    report.check("a free resource is granted", () -> expectTry(resource, "a", true));
    report.check("a held resource is refused without an error", () -> expectTry(resource, "b", false));
    report.check("its own holder is refused too", () -> expectTry(resource, "a", false));
    report.check("another resource is granted meanwhile", () -> expectTry(fresh("other"), "b", true));
    report.check(
        "an unlock by another owner answers 2",
        () -> expectUnlock(resource, "b", UnlockResponseStatus.LOCK_BELONG_TO_OTHERS));
    report.check("the lock stands after that", () -> expectTry(resource, "b", false));
    report.check(
        "an unlock by the owner answers 0", () -> expectUnlock(resource, "a", UnlockResponseStatus.SUCCESS));
    report.check(
        "an unlock of a free resource answers 1",
        () -> expectUnlock(resource, "a", UnlockResponseStatus.LOCK_UNEXIST));
    report.check("what was unlocked is granted to another owner", () -> expectTry(resource, "b", true));
    locks.unlock(STORE, resource, "b");
  }

  private void checkExpiry() {
    String resource = fresh("expiry");
    int expirySeconds = 2;
    report.check(
        "a lock ends at its expiry, not before",
        () -> {
          long start = System.nanoTime();
          expect("success", locks.tryLock(STORE, resource, "a", expirySeconds), true);
          while (!locks.tryLock(STORE, resource, "b", 30)) {
            if (millisSince(start) > expirySeconds * 1000 + EXPIRY_LATENESS_MS) {
              throw new AssertionError("still held");
            }
            Thread.sleep(50);
          }
          long heldMs = millisSince(start);
          if (heldMs < expirySeconds * 1000) {
            throw new AssertionError("ended after " + heldMs + " ms");
          }
        });
    report.check(
        "an unlock after the expiry and a takeover answers 2",
        () -> expectUnlock(resource, "a", UnlockResponseStatus.LOCK_BELONG_TO_OTHERS));
    locks.unlock(STORE, resource, "b");
  }

  private void checkBadInput() {
    report.check(
        "a name with slashes, spaces and other scripts is a name",
        () -> {
          String resource = fresh("a/b c%2F/ключ/鍵");
          expectTry(resource, "ich & du", true);
          expectTry(resource, "b", false);
          expectUnlock(resource, "ich & du", UnlockResponseStatus.SUCCESS);
        });
    report.check(
        "a name with || in it is refused",
        () ->
            expectRefusal(
                () -> locks.tryLock(STORE, "a||b", "a", 30),
                "INTERNAL",
                "failed to try acquiring lock: input key/keyPrefix"));
    report.check(
        "an expiry of zero is refused",
        () ->
            expectRefusal(
                () -> locks.tryLock(STORE, fresh("zero"), "a", 0),
                "INVALID_ARGUMENT",
                "ExpiryInSeconds is not positive in lock store " + STORE));
    // The SDK itself refuses these two before anything is sent.
    report.check(
        "an empty owner is refused",
        () -> expectSdkRefusal(() -> locks.tryLock(STORE, fresh("owner"), "", 30), "LockOwner"));
    report.check(
        "an empty resource is refused",
        () -> expectSdkRefusal(() -> locks.tryLock(STORE, "", "a", 30), "ResourceId"));
    report.check(
        "a try on a store that does not exist is refused by its name",
        () ->
            expectRefusal(
                () -> locks.tryLock("nowhere", "r", "a", 30), "INVALID_ARGUMENT", "lock store nowhere not found"));
    report.check(
        "an unlock on a store that does not exist is refused by its name",
        () ->
            expectRefusal(
                () -> locks.unlock("nowhere", "r", "a"), "INVALID_ARGUMENT", "lock store nowhere not found"));
  }

  private void checkToken() {
    String sentence = "a wrong API token is refused";
    if (env("DAPR_API_TOKEN").isEmpty()) {
      report.ignore(sentence, "the sidecar expects none: DAPR_API_TOKEN is not set");
      return;
    }
    report.check(
        sentence,
        () -> {
          try (Locks wrong = Locks.connectWithToken("wrong")) {
            expectRefusal(() -> wrong.tryLock(STORE, fresh("token"), "a", 30), "UNAUTHENTICATED", "");
          }
        });
  }

  private void checkOutage() {
    String tried = "a try fails while the backend is down";
    String unlocked = "an unlock fails while the backend is down";
    Optional<String> down = env("LOCK_STORE_DOWN");
    if (down.isEmpty()) {
      report.ignore(tried, "LOCK_STORE_DOWN names no store");
      report.ignore(unlocked, "LOCK_STORE_DOWN names no store");
      return;
    }
    report.check(
        tried,
        () ->
            expectRefusal(
                () -> locks.tryLock(down.get(), fresh("down"), "a", 30),
                "INTERNAL",
                "failed to try acquiring lock: "));
    report.check(
        unlocked,
        () ->
            expectRefusal(
                () -> locks.unlock(down.get(), fresh("down"), "a"), "INTERNAL", "failed to release lock: "));
  }

  private void expectTry(String resource, String owner, boolean want) {
    expect("success", locks.tryLock(STORE, resource, owner, 30), want);
  }

  private void expectUnlock(String resource, String owner, UnlockResponseStatus want) {
    expect("status", locks.unlock(STORE, resource, owner), want);
  }

  private static void expectRefusal(Callable<?> call, String code, String message) throws Exception {
    Object answer;
    try {
      answer = call.call();
    } catch (DaprException refused) {
      expect("code", refused.getErrorCode(), code);
      expectMessage(refused, message);
      return;
    }
    throw new AssertionError("answered " + answer + " instead of failing");
  }

  private static void expectSdkRefusal(Callable<?> call, String message) throws Exception {
    Object answer;
    try {
      answer = call.call();
    } catch (IllegalArgumentException refused) {
      expectMessage(refused, message);
      return;
    }
    throw new AssertionError("answered " + answer + " instead of failing");
  }

  private static void expectMessage(Exception refused, String message) {
    if (!refused.getMessage().contains(message)) {
      throw new AssertionError("message '" + refused.getMessage() + "' does not contain '" + message + "'");
    }
  }

  private static String fresh(String name) {
    return name + "-" + UUID.randomUUID();
  }

  private static long millisSince(long startNanos) {
    return (System.nanoTime() - startNanos) / 1_000_000;
  }

  private static Optional<String> env(String name) {
    return Optional.ofNullable(System.getenv(name)).filter(value -> !value.isEmpty());
  }
}
