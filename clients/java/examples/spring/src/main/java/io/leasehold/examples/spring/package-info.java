/** Scheduled tasks whose locks are held by leasehold. */
package io.leasehold.examples.spring;
