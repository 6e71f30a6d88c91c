/**
 * ShedLock on leasehold: {@code @SchedulerLock} with renewal, fencing tokens, and tasks that are
 * interrupted when their lock is lost.
 */
package io.leasehold.shedlock;
