package leasehold.redisfront;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.UUID;

/** Where the checks run: the addresses and the lossy proxy, as `run` sets them. */
final class Stage {
  final InetSocketAddress direct;
  final InetSocketAddress lossy;
  final String backend;
  final Duration stressTime;

  /** False on Redis itself, which does not remember a command whose reply was lost. */
  final boolean isFront;

  private final InetSocketAddress control;

  Stage(Map<String, String> environment) {
    direct = address(environment.get("FRONT_ADDRESS"));
    lossy = address(environment.get("FRONT_LOSSY_ADDRESS"));
    control = address(environment.get("FRONT_LOSSY_CONTROL"));
    backend = environment.get("FRONT_BACKEND");
    double seconds = Double.parseDouble(environment.getOrDefault("FRONT_STRESS_SECONDS", "5"));
    stressTime = Duration.ofMillis((long) (1000 * seconds));
    isFront = !"1".equals(environment.get("FRONT_IS_REDIS"));
  }

  private static InetSocketAddress address(String text) {
    int colon = text.lastIndexOf(':');
    int port = Integer.parseInt(text.substring(colon + 1));
    return new InetSocketAddress(text.substring(0, colon), port);
  }

  /** Loses one of {@code every} replies to commands on a key, at most {@code limit} of them. */
  void lose(String key, int every, int limit) throws IOException {
    command("lose " + key + " " + every + " " + limit);
  }

  /** Loses the next reply to a command on a key. */
  void loseNext(String key) throws IOException {
    lose(key, 1, 1);
  }

  int lost(String key) throws IOException {
    return Integer.parseInt(command("lost " + key));
  }

  private String command(String line) throws IOException {
    try (Socket connection = new Socket(control.getAddress(), control.getPort())) {
      connection.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
      var reader = new InputStreamReader(connection.getInputStream(), StandardCharsets.UTF_8);
      String answer = new BufferedReader(reader).readLine();
      if (answer == null || answer.startsWith("error")) {
        throw new IOException("the lossy proxy: " + answer);
      }
      return answer;
    }
  }

  static String freshKey(String what) {
    return what + "-" + UUID.randomUUID().toString().substring(0, 12);
  }
}
