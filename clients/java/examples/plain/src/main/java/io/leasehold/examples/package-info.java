/** Examples of the leasehold client. */
package io.leasehold.examples;
