//go:build stock

package main

// registerConnector adds nothing: the lock stores of this build are those of stock
// daprd, which is the built-in lock.redis alone.
func registerConnector() {}
