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
        new Endpoint("unix:/run/app.socket", false, true),
        Endpoint.parse("address", "unix:/run/app.socket"));
  }

  @Test
  void aWrongAddressIsNamed() {
    for (String wrong :
        new String[] {"ftp://host:1", "http://", "http://host/path", "host:abc", "h:0"}) {
      LeaseholdException error =
          assertThrows(
              LeaseholdException.class, () -> Endpoint.of(Map.of("DAPR_GRPC_ENDPOINT", wrong)));
      assertEquals("INVALID_REQUEST", error.reason());
      assertTrue(error.getMessage().startsWith("DAPR_GRPC_ENDPOINT "), error.getMessage());
      assertTrue(error.getMessage().endsWith(", not " + wrong), error.getMessage());
    }
  }

  @Test
  void aWrongPortIsNamed() {
    for (String wrong : new String[] {"abc", "0", "65536", "-1", "123456"}) {
      LeaseholdException error =
          assertThrows(
              LeaseholdException.class, () -> Endpoint.of(Map.of("DAPR_GRPC_PORT", wrong)));
      assertEquals("INVALID_REQUEST", error.reason());
      assertEquals("DAPR_GRPC_PORT must be a port, not " + wrong, error.getMessage());
    }
  }

  @Test
  void anAddressThatNobodyCanResolveIsNamed() {
    String wrong = "my host:1";
    Locks.Builder builder = Locks.builder("store");
    builder.environment(Map.of("DAPR_GRPC_ENDPOINT", wrong));
    for (String option : new String[] {"DAPR_GRPC_ENDPOINT", "address"}) {
      LeaseholdException error = assertThrows(LeaseholdException.class, builder::build);
      assertEquals("INVALID_REQUEST", error.reason());
      assertTrue(error.getMessage().startsWith(option + " "), error.getMessage());
      assertTrue(error.getMessage().endsWith(", not " + wrong), error.getMessage());
      builder.address(wrong);
    }
  }
}
