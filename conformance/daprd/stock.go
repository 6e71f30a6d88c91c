//go:build stock

package main

// registerConnector adds nothing: the lock stores of this build are those of stock
// daprd, only the built-in lock.redis.
func registerConnector() {}
