package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A lock taken through stock daprd is held for an app at leasehold's sidecar on the
// same store, and the other way round.
func TestStockDaprdAndTheSidecarExcludeEachOther(t *testing.T) {
	t.Parallel()
	forStockAndSidecar(t, func(t *testing.T, stock, sidecar *sidecar) {
		for name, pair := range map[string][2]api{
			"stock daprd first": {stock.grpc, sidecar.http},
			"the sidecar first": {sidecar.grpc, stock.http},
		} {
			t.Run(name, func(t *testing.T) {
				first, second := pair[0], pair[1]
				expectTry(t, first, "locks", name, "a", 60, true)
				expectTry(t, second, "locks", name, "b", 60, false)
				expectUnlock(t, second, "locks", name, "b", belongsToOthers)
				// The owner's name is the proof of ownership both ways.
				expectUnlock(t, second, "locks", name, "a", released)
				expectUnlock(t, first, "locks", name, "a", doesNotExist)
				expectTry(t, second, "locks", name, "b", 60, true)
				expectTry(t, first, "locks", name, "a", 60, false)
				expectUnlock(t, second, "locks", name, "b", released)
			})
		}
	})
}

// An app that waits at the sidecar is next when stock daprd unlocks.
func TestAWaiterAtTheSidecarIsGrantedWhatStockDaprdUnlocks(t *testing.T) {
	t.Parallel()
	forStockAndSidecar(t, func(t *testing.T, stock, sidecar *sidecar) {
		expectTry(t, stock.grpc, "locks", "r", "a", 60, true)
		granted := make(chan error, 1)
		go func() { granted <- lockAndWait(sidecar.httpAddress, "locks", "r", 20*time.Second) }()
		eventually(t, recovery, "the call waits", func() error {
			if _, lock := get(t, sidecar, "/v1.0-alpha2/lock/locks/r"); !strings.Contains(lock, `"waiters":1`) {
				return fails("the lock is shown as %s", lock)
			}
			return nil
		})
		select {
		case err := <-granted:
			t.Fatalf("the waiting call was answered while the lock was held: %v", err)
		default:
		}
		expectUnlock(t, stock.http, "locks", "r", "a", released)
		if err := <-granted; err != nil {
			t.Errorf("the waiter was not granted: %v", err)
		}
		expectTry(t, stock.http, "locks", "r", "a", 60, false)
		expectUnlock(t, stock.http, "locks", "r", "a", belongsToOthers)
	})
}

// forStockAndSidecar runs a test on each store that two processes can share: stock
// daprd over a front, and the sidecar on the same store.
func forStockAndSidecar(t *testing.T, test func(t *testing.T, stock, sidecar *sidecar)) {
	for kind, newStore := range restartables {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			store := newStore(t).store
			front := startRedisFront(t, store)
			stock := startStockDaprd(t, "one", builtInRedis("locks", front.address, map[string]string{"keyPrefix": "name"}))
			store.Metadata.Name = "locks"
			store.Spec.Metadata = append(store.Spec.Metadata, metadataItem{Name: "keyPrefix", Value: "name"})
			test(t, stock, startLeaseholdSidecar(t, resources(t, store), nil))
		})
	}
}

// lockAndWait takes a lock over alpha2.
func lockAndWait(address, store, resource string, wait time.Duration) error {
	body, err := json.Marshal(map[string]string{"ttl": "30s", "wait": wait.String()})
	if err != nil {
		return err
	}
	client := http.Client{Timeout: wait + 10*time.Second}
	url := fmt.Sprintf("http://%s/v1.0-alpha2/lock/%s/%s", address, store, resource)
	response, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d with %s", response.StatusCode, text)
	}
	return nil
}
