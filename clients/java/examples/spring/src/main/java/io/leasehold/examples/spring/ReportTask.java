package io.leasehold.examples.spring;

import io.leasehold.shedlock.LeaseholdLockProvider;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;

/** A task that runs in one of the instances at a time. */
@Component
class ReportTask {
  @Scheduled(fixedDelay = 100)
  @SchedulerLock(name = "report", lockAtLeastFor = "PT0.05S")
  public void writeReport() throws InterruptedException {
    long begin = System.currentTimeMillis();
    long token = LeaseholdLockProvider.currentLock().orElseThrow().token();
    Thread.sleep(100); // the work; a lost lock interrupts it
    System.out.println("report " + begin + " " + System.currentTimeMillis() + " token " + token);
  }
}
