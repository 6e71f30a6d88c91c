// Package deployment holds deploy/kubernetes/ to the schemas of Kubernetes and
// Dapr, and to what Dapr's own injector makes of it. No cluster takes part.
package deployment
