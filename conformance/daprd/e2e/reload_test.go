package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// reloaded is how long daprd may take to act on changed component YAML, which
// it sees within two seconds on a quiet machine.
const reloaded = 15 * time.Second

// A YAML file that appears while daprd runs is loaded.
func TestHotReloadLoadsWhatAppears(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"})
	yaml := resources(t, userComponent(t, "memory", "first", nil))
	d := startDaprd(t, daprdOptions{sockets: folder, resources: yaml})
	expectTry(t, d.grpc, "first", "r", "a", 30, true)
	write(t, filepath.Join(yaml, "second.yaml"), userComponent(t, "memory", "second", nil))
	eventually(t, reloaded, "the second store loads", func() error {
		_, err := d.grpc.tryLock("second", "r", "a", 30)
		return err
	})
	expectTry(t, d.http, "first", "r", "b", 30, false)
	expectUnlock(t, d.http, "first", "r", "a", released)
	expectUnlock(t, d.http, "second", "r", "a", released)
}

// The store of a YAML file that goes is gone: the connector is closed, its
// connection dropped. The other store, and what is locked, stay.
func TestHotReloadClosesWhatGoes(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"})
	yaml := resources(t, userComponent(t, "memory", "stays", nil))
	gone := filepath.Join(yaml, "goes.yaml")
	write(t, gone, userComponent(t, "memory", "goes", nil))
	d := startDaprd(t, daprdOptions{sockets: folder, resources: yaml})
	expectTry(t, d.grpc, "goes", "r", "a", 60, true)
	expectTry(t, d.grpc, "stays", "r", "a", 60, true)
	// One for each store; the discovery's own is closed by now.
	expectConnections(t, socketOf(folder, "memory"), 2)

	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	eventually(t, reloaded, "the store is gone", func() error {
		_, err := d.grpc.tryLock("goes", "r", "b", 30)
		if err == nil || !strings.Contains(err.Error(), "lock store goes not found") {
			return fails("a try answered %v", err)
		}
		return nil
	})
	expectConnections(t, socketOf(folder, "memory"), 1)
	if !strings.Contains(d.logText(), "lock store goes is closed") {
		t.Error("the connector was not closed")
	}
	expectTry(t, d.http, "stays", "r", "b", 30, false)
	expectUnlock(t, d.http, "stays", "r", "a", released)

	// It comes back as the same instance, with what was locked there.
	write(t, gone, userComponent(t, "memory", "goes", nil))
	eventually(t, reloaded, "the store is back", func() error {
		return tried(d.grpc, "goes", "r", "b", 30, false)
	})
	expectUnlock(t, d.grpc, "goes", "r", "a", released)
}

// New settings in a YAML file are used: here another Redis and another prefix.
func TestHotReloadUsesChangedSettings(t *testing.T) {
	t.Parallel()
	before, _ := startRedis(t)
	after, _ := startRedis(t)
	folder := sockets(t)
	startLeasehold(t, folder, []string{"redis"})
	settings := func(address, prefix string) component {
		return userComponent(t, "redis", "locks", map[string]string{"redisHost": address, "keyPrefix": prefix})
	}
	yaml := t.TempDir()
	file := filepath.Join(yaml, "locks.yaml")
	write(t, file, settings(before, "none"))
	d := startDaprd(t, daprdOptions{sockets: folder, resources: yaml})
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)

	write(t, file, settings(after, "name"))
	eventually(t, reloaded, "the store is at the new Redis", func() error {
		return tried(d.grpc, "locks", "r", "b", 60, true)
	})
	if got := redisGet(t, after, "lock||locks||r"); got != "b" {
		t.Errorf("in the new Redis the key is %q", got)
	}
	if got := redisGet(t, before, "lock||r"); got != "a" {
		t.Errorf("in the old Redis the key is %q: the lock there was not left alone", got)
	}
	if !strings.Contains(d.logText(), "lock store locks is closed") {
		t.Error("the connector with the old settings was not closed")
	}
	expectUnlock(t, d.http, "locks", "r", "b", released)

	write(t, file, settings(before, "none"))
	eventually(t, reloaded, "the store is at the old Redis again", func() error {
		return tried(d.grpc, "locks", "r", "b", 60, false)
	})
	expectUnlock(t, d.http, "locks", "r", "a", released)
}

// SIGHUP starts daprd anew inside its process: Init is sent again, and what
// was locked stays locked.
func TestReloadBySIGHUP(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))})
	for round := range 3 {
		owner := fmt.Sprintf("owner-%d", round)
		expectTry(t, d.grpc, "locks", "r", owner, 60, true)
		d.reload()
		eventually(t, 5*time.Second, "the lock stands after the reload", func() error {
			return tried(d.grpc, "locks", "r", "b", 30, false)
		})
		expectUnlock(t, d.http, "locks", "r", owner, released)
	}
}

func expectConnections(t *testing.T, socket string, want int) {
	t.Helper()
	eventually(t, reloaded, fmt.Sprintf("%d connections to the component", want), func() error {
		if got := connections(t, socket); got != want {
			return fails("there are %d", got)
		}
		return nil
	})
}

// connections counts those that a socket's server has, as the kernel reports it.
func connections(t *testing.T, socket string) (count int) {
	t.Helper()
	const connected = "03"
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		// Num RefCount Protocol Flags Type St Inode Path
		fields := strings.Fields(line)
		if len(fields) == 8 && fields[5] == connected && fields[7] == socket {
			count++
		}
	}
	return count
}
