// Package e2e runs the real daprd with the real leasehold and real backends,
// by the component YAML that users copy. All of it is tests.
package e2e
