package io.leasehold.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A process that takes a lock, prints its token, and holds it until it is killed. */
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
    String line = child.inputReader(StandardCharsets.UTF_8).readLine();
    if (line == null || !line.startsWith("token ")) {
      throw new IOException("the child said " + line);
    }
    return Long.parseLong(line.substring("token ".length()));
  }

  public static void main(String[] arguments) throws Exception {
    Locks.Builder builder = Locks.builder(TestSidecar.STORE);
    if (arguments.length > 2) {
      builder.address(arguments[2]);
    }
    Duration ttl = Duration.ofSeconds(Long.parseLong(arguments[1]));
    try (Locks locks = builder.build();
        HeldLock lock = locks.lock(arguments[0], LockOptions.builder().ttl(ttl).build())) {
      System.out.println("token " + lock.token());
      lock.run(() -> Thread.sleep(Long.MAX_VALUE));
    } catch (LeaseholdException error) {
      System.out.println("reason " + error.reason());
    }
  }
}
