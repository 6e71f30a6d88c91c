package leasehold.redisfront;

import static leasehold.redisfront.Checks.SHORT;
import static leasehold.redisfront.Checks.takenWhenFree;
import static leasehold.redisfront.Checks.tolerant;
import static leasehold.redisfront.Report.eventually;
import static leasehold.redisfront.Report.expect;
import static leasehold.redisfront.Stage.freshKey;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import leasehold.redisfront.Library.Client;
import leasehold.redisfront.Library.Held;

/** Several clients contend for a few locks, half of them over the lossy proxy. */
final class Stress {
  private static final int CLIENTS = 8;
  private static final int KEYS = 3;

  /** One of this many replies is lost. */
  private static final int LOSSES_APART = 20;

  /** How often each lock is released at least. */
  private static final int RELEASES = 10;

  private final Stage stage;
  private final Library library;

  Stress(Stage stage, Library library) {
    this.stage = stage;
    this.library = library;
  }

  void run() throws Exception {
    List<Section> sections = new ArrayList<>();
    for (int n = 0; n < KEYS; n++) {
      var section = new Section(freshKey("stress"));
      stage.lose(section.key, LOSSES_APART, 1_000_000);
      sections.add(section);
    }
    List<Client> clients = new ArrayList<>();
    for (int n = 0; n < CLIENTS; n++) {
      clients.add(library.connect().apply(n % 2 == 0 ? stage.direct : stage.lossy));
    }
    // A slow store gets as many rounds as it needs.
    eventually(
        "enough releases, and a lost reply",
        () -> {
          round(clients, sections);
          return isEnough(sections) ? true : null;
        });
    for (Section section : sections) {
      takenWhenFree(clients.get(0), section.key);
    }
  }

  private void round(List<Client> clients, List<Section> sections) throws InterruptedException {
    long ends = System.nanoTime() + stage.stressTime.toNanos();
    List<Thread> threads = new ArrayList<>();
    for (Client client : clients) {
      threads.add(new Thread(() -> contend(client, sections, ends)));
    }
    threads.forEach(Thread::start);
    for (Thread thread : threads) {
      thread.join();
    }
  }

  private boolean isEnough(List<Section> sections) throws IOException {
    int lost = 0;
    boolean isReleased = true;
    for (Section section : sections) {
      expect("the number of overlaps on " + section.key, section.overlaps, 0);
      isReleased &= section.releases >= RELEASES;
      lost += stage.lost(section.key);
    }
    return isReleased && lost > 0;
  }

  private static void contend(Client client, List<Section> sections, long ends) {
    var random = ThreadLocalRandom.current();
    while (System.nanoTime() < ends) {
      Section section = sections.get(random.nextInt(sections.size()));
      long sureUntil = System.nanoTime() + SHORT.toNanos();
      Held held = tolerant(() -> client.take(section.key, SHORT));
      if (held == null) {
        // Clients that poll pause between their tries.
        pause(random.nextInt(10));
        continue;
      }
      boolean inTime = section.enter(sureUntil);
      if (random.nextInt(10) == 0) {
        tolerant(() -> held.extend(SHORT));
      }
      // The lock is held for a while, so that an overlap shows.
      pause(random.nextInt(2));
      section.leave(sureUntil);
      if (Boolean.TRUE.equals(tolerant(held::release)) && inTime) {
        section.released();
      }
    }
  }

  private static void pause(long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException interrupted) {
      throw new IllegalStateException(interrupted);
    }
  }

  /** What a lock protects. It has the time until which its holder is sure of the lock. */
  private static final class Section {
    final String key;
    int overlaps;
    int releases;
    private boolean isHeld;
    private long sureUntil;

    Section(String key) {
      this.key = key;
    }

    /** Whether the client came in time. */
    synchronized boolean enter(long sureUntil) {
      long now = System.nanoTime();
      if (now >= sureUntil) {
        // The thread was delayed: by now another may hold the lock.
        return false;
      }
      if (isHeld && now < this.sureUntil) {
        overlaps++;
      }
      isHeld = true;
      this.sureUntil = sureUntil;
      return true;
    }

    synchronized void leave(long sureUntil) {
      if (this.sureUntil == sureUntil) {
        isHeld = false;
      }
    }

    synchronized void released() {
      releases++;
    }
  }
}
