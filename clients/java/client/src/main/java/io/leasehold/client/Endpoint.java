package io.leasehold.client;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.TlsChannelCredentials;
import java.util.Map;

/** Where the sidecar is. */
record Endpoint(String target, boolean tls, boolean unix) {
  private static final String LOCAL = "127.0.0.1:";
  private static final String DEFAULT_PORT = "50001";

  /** From {@code DAPR_GRPC_ENDPOINT}, else {@code DAPR_GRPC_PORT}, else the default. */
  static Endpoint of(Map<String, String> environment) {
    String address = environment.getOrDefault("DAPR_GRPC_ENDPOINT", "").strip();
    if (!address.isEmpty()) {
      return parse(address);
    }
    String port = environment.getOrDefault("DAPR_GRPC_PORT", "").strip();
    return parse(LOCAL + (port.isEmpty() ? DEFAULT_PORT : port));
  }

  static Endpoint parse(String address) {
    if (address.startsWith("unix:")) {
      return new Endpoint(address, false, true);
    }
    int scheme = address.indexOf("://");
    String name = scheme < 0 ? "" : address.substring(0, scheme);
    String host = scheme < 0 ? address : address.substring(scheme + 3);
    while (host.endsWith("/")) {
      host = host.substring(0, host.length() - 1);
    }
    if (host.isEmpty() || host.contains("/")) {
      throw wrong(address);
    }
    return switch (name) {
      case "" -> new Endpoint(withPort(host, DEFAULT_PORT), false, false);
      case "http" -> new Endpoint(withPort(host, "80"), false, false);
      case "https" -> new Endpoint(withPort(host, "443"), true, false);
      default -> throw wrong(address);
    };
  }

  private static String withPort(String host, String port) {
    boolean given = host.indexOf(':', host.lastIndexOf(']') + 1) >= 0;
    return given ? host : host + ":" + port;
  }

  private static LeaseholdException wrong(String address) {
    return Requests.invalid(
        "address must be host:port, http://…, https://… or unix:…, not " + address);
  }

  ManagedChannel open() {
    ChannelCredentials credentials =
        tls ? TlsChannelCredentials.create() : InsecureChannelCredentials.create();
    ManagedChannelBuilder<?> channel =
        Grpc.newChannelBuilder(unix ? target : "dns:///" + target, credentials);
    if (unix) {
      channel.overrideAuthority("localhost");
    }
    return channel.build();
  }
}
