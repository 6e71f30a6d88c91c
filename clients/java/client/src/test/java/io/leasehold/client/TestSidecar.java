package io.leasehold.client;

import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.leasehold.v1.ForceUnlockRequest;
import io.leasehold.v1.GetLockRequest;
import io.leasehold.v1.GetLockResponse;
import io.leasehold.v1.InspectionGrpc;
import io.leasehold.v1.LocksGrpc;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A store, a sidecar and a proxy, started by {@code leasehold-test-sidecar}. */
public final class TestSidecar implements AutoCloseable {
  /** The name of the store. */
  public static final String STORE = "lockstore";

  private static final Map<String, TestSidecar> SHARED = new ConcurrentHashMap<>();
  private static final Pattern PORT = Pattern.compile("\"(\\w+)Port\":(\\d+)");

  private final Process process;
  private final BufferedReader answers;
  private final int port;
  private final int proxyPort;
  private final int httpPort;
  private final ManagedChannel channel;

  private TestSidecar(String backend, Map<String, String> environment) throws IOException {
    List<String> command = new ArrayList<>(List.of(program(), backend));
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().putAll(environment);
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    process = builder.start();
    answers = process.inputReader(StandardCharsets.UTF_8);
    String line = answers.readLine();
    if (line == null) {
      throw new IOException("leasehold-test-sidecar " + backend + " did not start");
    }
    int found = 0;
    int foundProxy = 0;
    int foundHttp = 0;
    for (Matcher ports = PORT.matcher(line); ports.find(); ) {
      switch (ports.group(1)) {
        case "grpc" -> found = Integer.parseInt(ports.group(2));
        case "proxy" -> foundProxy = Integer.parseInt(ports.group(2));
        case "http" -> foundHttp = Integer.parseInt(ports.group(2));
        default -> {} // not used here
      }
    }
    port = found;
    proxyPort = foundProxy;
    httpPort = foundHttp;
    channel = ManagedChannelBuilder.forTarget(address()).usePlaintext().build();
  }

  /** A sidecar for the caller alone, which it may kill. */
  public static TestSidecar start(String backend) {
    return start(backend, Map.of());
  }

  static TestSidecar start(String backend, Map<String, String> environment) {
    try {
      return new TestSidecar(backend, environment);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** A sidecar for all tests that do not disturb it. It ends with this process. */
  public static TestSidecar shared(String backend) {
    return SHARED.computeIfAbsent(backend, TestSidecar::start);
  }

  private static String program() throws IOException {
    String named = System.getenv("LEASEHOLD_TEST_SIDECAR");
    if (named != null && !named.isEmpty()) {
      return named;
    }
    Path program = root().resolve("target/debug/leasehold-test-sidecar");
    if (!Files.isExecutable(program)) {
      throw new IOException(program + " is missing; LEASEHOLD_TEST_SIDECAR may name another");
    }
    return program.toString();
  }

  /** The folder of the repository. */
  static Path root() {
    Path at = Path.of("").toAbsolutePath();
    while (!Files.exists(at.resolve("proto/leasehold/v1/locks.proto"))) {
      at = at.getParent();
    }
    return at;
  }

  /** Where the sidecar is. */
  public String address() {
    return "127.0.0.1:" + port;
  }

  String proxyAddress() {
    return "127.0.0.1:" + proxyPort;
  }

  int httpPort() {
    return httpPort;
  }

  int port() {
    return port;
  }

  /** A client of it. */
  public Locks locks() {
    return Locks.builder(STORE).address(address()).build();
  }

  Locks locksByProxy() {
    return Locks.builder(STORE).address(proxyAddress()).build();
  }

  /** Carries out a command of leasehold-test-sidecar. */
  public synchronized void command(String command) {
    try {
      process.getOutputStream().write((command + "\n").getBytes(StandardCharsets.UTF_8));
      process.getOutputStream().flush();
      String answer = answers.readLine();
      if (!"ok".equals(answer)) {
        throw new IOException(command + " was answered with " + answer);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Ends the lock of any holder, also from a thread that this interrupts. */
  public void force(String name) {
    ForceUnlockRequest request =
        ForceUnlockRequest.newBuilder().setStoreName(STORE).setResourceId(name).build();
    CompletableFuture.runAsync(
            () ->
                LocksGrpc.newBlockingStub(channel)
                    .withDeadlineAfter(30, TimeUnit.SECONDS)
                    .forceUnlock(request),
            task -> new Thread(task).start())
        .join();
  }

  /** Who holds a lock, and how many wait. */
  public GetLockResponse inspect(String name) {
    return InspectionGrpc.newBlockingStub(channel)
        .withDeadlineAfter(30, TimeUnit.SECONDS)
        .getLock(GetLockRequest.newBuilder().setStoreName(STORE).setResourceId(name).build());
  }

  /** Waits until this many wait for the lock. */
  void awaitWaiters(String name, int count) throws InterruptedException {
    Eventually.check(count + " wait for " + name, () -> inspect(name).getWaiters() == count);
  }

  @Override
  public void close() {
    channel.shutdownNow();
    try {
      process.getOutputStream().close(); // the launcher ends everything with its input
      process.waitFor(30, TimeUnit.SECONDS);
    } catch (IOException | InterruptedException error) {
      process.destroy();
    }
  }
}
