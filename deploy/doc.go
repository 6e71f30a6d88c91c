// Package deploy holds the Dockerfiles to BuildKit's own parser and linter, and
// to what the rest of the repository expects of the images. Nothing is built.
package deploy
