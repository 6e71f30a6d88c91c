package io.leasehold.examples.spring;

import io.leasehold.client.Locks;
import io.leasehold.shedlock.LeaseholdLockProvider;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.scheduling.annotation.EnableScheduling;

/** An application with ShedLock. Only its lock provider is leasehold's. */
@SpringBootApplication
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "PT10M")
public class ExampleApplication {
  /** For Spring. */
  public ExampleApplication() {}

  /**
   * Runs until the process is ended.
   *
   * @param arguments Spring's
   */
  public static void main(String[] arguments) {
    SpringApplication.run(ExampleApplication.class, arguments);
  }

  @Bean
  Locks locks() {
    return Locks.of("lockstore");
  }

  @Bean
  LockProvider lockProvider(Locks locks) {
    return new LeaseholdLockProvider(locks);
  }
}
