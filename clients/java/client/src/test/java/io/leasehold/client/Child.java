package io.leasehold.client;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * A process that takes a lock and prints its token. For each line of its input it prints the result
 * of {@code check()}. It holds the lock until its input ends.
 */
final class Child {
  private Child() {}

  static Process start(String name, String ttl, Map<String, String> environment, String... address)
      throws IOException {
    List<String> command =
        new ArrayList<>(
            List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:TieredStopAtLevel=1",
                "-cp",
                System.getProperty("java.class.path"),
                Child.class.getName(),
                name,
                ttl));
    command.addAll(List.of(address));
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().keySet().removeIf(variable -> variable.startsWith("DAPR_"));
    builder.environment().putAll(environment);
    builder.redirectErrorStream(true);
    return builder.start();
  }

  /** The token that a child prints. */
  static long token(Process child) throws IOException {
    String line = answer(child);
    if (line == null || !line.startsWith("token ")) {
      throw new IOException("the child printed " + line);
    }
    return Long.parseLong(line.substring("token ".length()));
  }

  /** The next line that a child prints. */
  static String answer(Process child) throws IOException {
    return child.inputReader(UTF_8).readLine();
  }

  static void askForCheck(Process child) throws IOException {
    child.outputWriter(UTF_8).append("check\n").flush();
  }

  /** The result of a child's {@code check()}: "held", or the cause of the loss. */
  static String check(Process child) throws IOException {
    askForCheck(child);
    return answer(child);
  }

  static void signal(Process child, String signal) throws IOException, InterruptedException {
    new ProcessBuilder("kill", "-" + signal, Long.toString(child.pid())).start().waitFor();
  }

  private static String check(HeldLock lock) {
    try {
      lock.check();
      return "held";
    } catch (LockLostException lost) {
      return lost.lossCause().toString();
    }
  }

  public static void main(String[] arguments) throws Exception {
    Locks.Builder builder = Locks.builder(TestSidecar.STORE);
    if (arguments.length > 2) {
      builder.address(arguments[2]);
    }
    Duration ttl = Duration.ofSeconds(Long.parseLong(arguments[1]));
    try (Locks locks = builder.build()) {
      locks.lock(arguments[0] + "-first").close(); // connecting may take longer than the TTL
      hold(locks, arguments[0], ttl);
    } catch (LeaseholdException error) {
      System.out.println("reason " + error.reason());
    }
  }

  private static void hold(Locks locks, String name, Duration ttl) throws Exception {
    try (HeldLock lock = locks.lock(name, LockOptions.builder().ttl(ttl).build())) {
      System.out.println("token " + lock.token());
      BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, UTF_8));
      while (questions.readLine() != null) {
        System.out.println(check(lock));
      }
    }
  }
}
