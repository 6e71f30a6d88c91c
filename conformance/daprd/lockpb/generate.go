// Package lockpb is the component protocol's client in Go.
//
// The generated files are committed, so that a clone builds with Go alone, and
// a test compares them with the .proto file they came from. The messages that all
// components share (PingRequest and the like) are Dapr's own Go types: a
// second registration of their names would panic at start.
//
// To generate them again: `go generate ./lockpb`, with protoc in PATH.
package lockpb

//go:generate ./generate.sh
