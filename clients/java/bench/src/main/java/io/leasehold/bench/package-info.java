/** What the client costs. */
package io.leasehold.bench;
