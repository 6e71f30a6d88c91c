// Package deployment checks deploy/kubernetes/ against the schemas of Kubernetes
// and Dapr, and against the output of Dapr's own injector, without a cluster. It
// also checks that the tests that the documentation names exist.
package deployment
