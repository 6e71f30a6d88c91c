package io.leasehold.client;

import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.MethodSource;

/** Tests that run on each backend of {@code LEASEHOLD_BACKENDS}, by default on all. */
@OnEachBackend.Backends
public abstract class OnEachBackend {
  private static final AtomicInteger NAMES = new AtomicInteger();

  /** The backend, set by JUnit. */
  @Parameter protected String backend;

  /** Marks the class. */
  @Inherited
  @Target(ElementType.TYPE)
  @Retention(RetentionPolicy.RUNTIME)
  @ParameterizedClass(name = "{0}")
  @MethodSource("io.leasehold.client.OnEachBackend#chosen")
  @interface Backends {}

  static List<String> chosen() {
    String chosen = System.getenv("LEASEHOLD_BACKENDS");
    return List.of((chosen == null || chosen.isBlank() ? "memory,redis,etcd" : chosen).split(","));
  }

  /** The sidecar that tests share. */
  protected TestSidecar sidecar() {
    return TestSidecar.shared(backend);
  }

  /** A name that no other test has. */
  protected static String newName() {
    return "test-" + ProcessHandle.current().pid() + "-" + NAMES.incrementAndGet();
  }
}
