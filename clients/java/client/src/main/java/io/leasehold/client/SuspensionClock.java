package io.leasehold.client;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * A monotonic clock in nanoseconds that counts the time in which the machine was suspended. {@link
 * System#nanoTime} does not count it on Linux; what {@code /proc/uptime} has gained on it is added.
 */
final class SuspensionClock {
  /** Both clocks are not read at the same moment, and the uptime has two decimals. */
  private static final long ROUNDING = TimeUnit.MILLISECONDS.toNanos(100);

  private static final SuspensionClock SYSTEM =
      new SuspensionClock(System::nanoTime, new Uptime()::nanos);

  private final LongSupplier monotonic;
  private final LongSupplier sinceStart;
  private final long offset;
  private long slept;

  SuspensionClock(LongSupplier monotonic, LongSupplier sinceStart) {
    this.monotonic = monotonic;
    this.sinceStart = sinceStart;
    this.offset = sinceStart.getAsLong() - monotonic.getAsLong();
  }

  static long now() {
    return SYSTEM.time();
  }

  synchronized long time() {
    long reading = monotonic.getAsLong();
    long gained = sinceStart.getAsLong() - reading - offset;
    if (gained > slept + ROUNDING) {
      slept = gained;
    }
    return reading + slept;
  }

  /** The time since the machine's start; it stands still where there is no such file. */
  private static final class Uptime {
    // A FileChannel would be closed by the interrupt of a reading thread.
    private RandomAccessFile file;
    private final byte[] text = new byte[64];
    private long nanos;

    Uptime() {
      try {
        file = new RandomAccessFile("/proc/uptime", "r");
      } catch (IOException | SecurityException none) {
        file = null;
      }
    }

    long nanos() {
      if (file != null) {
        try {
          file.seek(0);
          String line = new String(text, 0, file.read(text), StandardCharsets.US_ASCII);
          nanos =
              new BigDecimal(line.substring(0, line.indexOf(' '))).movePointRight(9).longValue();
        } catch (IOException | RuntimeException unreadable) {
          file = null;
        }
      }
      return nanos;
    }
  }
}
