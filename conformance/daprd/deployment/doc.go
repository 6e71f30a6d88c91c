// Package deployment holds deploy/kubernetes/ to the schemas of Kubernetes and
// Dapr, and to what Dapr's own injector makes of it (no cluster takes part), and
// what the documentation says of it all to the tests that it names.
package deployment
