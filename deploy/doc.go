// Package deploy holds the Dockerfiles to BuildKit's own parser and linter, the
// dashboard to the types that Grafana publishes, and both to what the rest of
// the repository expects. Nothing is built.
package deploy
