package io.leasehold.client;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.TlsChannelCredentials;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Where the sidecar is. */
record Endpoint(String target, boolean tls, boolean unix) {
  private static final String LOCAL = "127.0.0.1:";
  private static final String DEFAULT_PORT = "50001";

  /** From {@code DAPR_GRPC_ENDPOINT}, else {@code DAPR_GRPC_PORT}, else the default. */
  static Endpoint of(Map<String, String> environment) {
    String address = environment.getOrDefault("DAPR_GRPC_ENDPOINT", "").strip();
    if (!address.isEmpty()) {
      return parse("DAPR_GRPC_ENDPOINT", address);
    }
    String port = environment.getOrDefault("DAPR_GRPC_PORT", "").strip();
    if (!port.isEmpty() && !isPort(port)) {
      throw Requests.invalid("DAPR_GRPC_PORT must be a port, not " + port);
    }
    return new Endpoint(LOCAL + (port.isEmpty() ? DEFAULT_PORT : port), false, false);
  }

  /** Reads an address that was set by the option or the variable of that name. */
  static Endpoint parse(String option, String address) {
    if (address.startsWith("unix:")) {
      return new Endpoint(address, false, true);
    }
    int scheme = address.indexOf("://");
    String name = scheme < 0 ? "" : address.substring(0, scheme);
    String host = scheme < 0 ? address : address.substring(scheme + 3);
    while (host.endsWith("/")) {
      host = host.substring(0, host.length() - 1);
    }
    int port = portAt(host);
    if (host.isEmpty() || host.contains("/") || (port >= 0 && !isPort(host.substring(port + 1)))) {
      throw wrong(option, address);
    }
    return switch (name) {
      case "" -> new Endpoint(withPort(host, DEFAULT_PORT), false, false);
      case "http" -> new Endpoint(withPort(host, "80"), false, false);
      case "https" -> new Endpoint(withPort(host, "443"), true, false);
      default -> throw wrong(option, address);
    };
  }

  private static String withPort(String host, String port) {
    return portAt(host) >= 0 ? host : host + ":" + port;
  }

  /** Where the colon before the port is; negative if there is none. */
  private static int portAt(String host) {
    return host.indexOf(':', host.lastIndexOf(']') + 1);
  }

  private static boolean isPort(String text) {
    if (!text.matches("[0-9]{1,5}")) {
      return false;
    }
    int port = Integer.parseInt(text);
    return port > 0 && port <= 65_535;
  }

  private static LeaseholdException wrong(String option, String address) {
    return Requests.invalid(
        option + " must be host:port, http://…, https://… or unix:…, not " + address);
  }

  /** Makes a channel. An error names the option or variable of that name. */
  ManagedChannel open(String option) {
    ChannelCredentials credentials =
        tls ? TlsChannelCredentials.create() : InsecureChannelCredentials.create();
    ManagedChannelBuilder<?> channel =
        Grpc.newChannelBuilder(unix ? target : "dns:///" + target, credentials);
    // Without this a connection that died without a reset is used forever.
    channel.keepAliveTime(10, TimeUnit.SECONDS).keepAliveTimeout(5, TimeUnit.SECONDS);
    if (unix) {
      channel.overrideAuthority("localhost");
    }
    try {
      return channel.build();
    } catch (IllegalArgumentException error) {
      throw wrong(option, target);
    }
  }
}
