/**
 * Distributed locks that cancel the work when they are lost.
 *
 * <p>{@link io.leasehold.client.Locks} takes locks from one store of a leasehold sidecar. A {@link
 * io.leasehold.client.HeldLock} is one of them; {@link io.leasehold.client.LockOptions} say how it
 * is taken. Every error is a {@link io.leasehold.client.LeaseholdException}.
 */
package io.leasehold.client;
