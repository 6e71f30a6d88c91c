package io.leasehold.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;

class EndpointTest {
  private static void is(String target, boolean tls, Map<String, String> environment) {
    assertEquals(new Endpoint(target, tls, false), Endpoint.of(environment));
  }

  @Test
  void theEnvironmentNamesTheSidecar() {
    is("127.0.0.1:50001", false, Map.of());
    is("127.0.0.1:4000", false, Map.of("DAPR_GRPC_PORT", "4000"));
    is("host:4001", false, Map.of("DAPR_GRPC_PORT", "4000", "DAPR_GRPC_ENDPOINT", "host:4001"));
    is("host:4001", false, Map.of("DAPR_GRPC_ENDPOINT", "http://host:4001/"));
    is("host:443", true, Map.of("DAPR_GRPC_ENDPOINT", "https://host"));
    is("[::1]:50001", false, Map.of("DAPR_GRPC_ENDPOINT", "[::1]"));
    is("[::1]:5", false, Map.of("DAPR_GRPC_ENDPOINT", "[::1]:5"));
    assertEquals(
        new Endpoint("unix:/run/app.socket", false, true), Endpoint.parse("unix:/run/app.socket"));
  }

  @Test
  void aWrongAddressIsNamed() {
    for (String wrong : new String[] {"ftp://host:1", "http://", "http://host/path"}) {
      LeaseholdException error =
          assertThrows(LeaseholdException.class, () -> Endpoint.parse(wrong));
      assertTrue(error.getMessage().contains(wrong), error.getMessage());
    }
  }
}
