// Command etcd-peer measures etcd's own Go mutex, for the comparison that
// `make bench` makes. It prints one JSON line and exits.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// result is what one measurement gave; latencies are in milliseconds.
type result struct {
	Rate  float64 `json:"rate"`
	P50Ms float64 `json:"p50_ms"`
	P99Ms float64 `json:"p99_ms"`
}

func main() {
	endpoint := flag.String("endpoint", "", "the etcd server's host:port")
	mode := flag.String("mode", "shared", "shared: one session; own: a session a lock; handover: one key")
	callers := flag.Int("callers", 1, "how many lock and unlock at the same time (handover: how many wait)")
	seconds := flag.Int("seconds", 4, "for how long")
	flag.Parse()
	if err := run(*endpoint, *mode, *callers, time.Duration(*seconds)*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "etcd-peer:", err)
		os.Exit(1)
	}
}

func run(endpoint, mode string, callers int, duration time.Duration) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	if err != nil {
		return err
	}
	defer session.Close()

	var work func(caller int, end time.Time) ([]time.Duration, error)
	switch mode {
	case "shared":
		work = func(caller int, end time.Time) ([]time.Duration, error) { return cycles(client, session, caller, end) }
	case "own":
		work = func(caller int, end time.Time) ([]time.Duration, error) { return cycles(client, nil, caller, end) }
	case "handover":
		callers++ // one holds while the others wait
		released := new(atomic.Int64)
		work = func(_ int, end time.Time) ([]time.Duration, error) { return handOver(client, released, end) }
	default:
		return fmt.Errorf("unknown mode %q", mode)
	}

	started := time.Now()
	end := started.Add(duration)
	var (
		all  []time.Duration
		errs error
		mu   sync.Mutex
		wait sync.WaitGroup
	)
	for caller := range callers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			took, err := work(caller, end)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			if err != nil {
				errs = err
			}
		}()
	}
	wait.Wait()
	if errs != nil {
		return errs
	}
	elapsed := time.Since(started)
	slices.Sort(all)
	if len(all) == 0 {
		return fmt.Errorf("nothing was measured")
	}
	at := func(q float64) float64 {
		return float64(all[int(q*float64(len(all)-1))].Microseconds()) / 1e3
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		Rate: float64(len(all)) / elapsed.Seconds(), P50Ms: at(0.5), P99Ms: at(0.99),
	})
}

// cycles locks and unlocks a key of its own, and returns how long each
// acquisition took: with no shared session, that of a session of its own, which
// ends with its lock, included.
func cycles(client *clientv3.Client, shared *concurrency.Session, caller int, end time.Time) ([]time.Duration, error) {
	ctx := context.Background()
	key := fmt.Sprintf("/peer/%d", caller)
	var took []time.Duration
	for time.Now().Before(end) {
		asked := time.Now()
		session := shared
		if session == nil {
			var err error
			if session, err = concurrency.NewSession(client, concurrency.WithTTL(30)); err != nil {
				return nil, err
			}
		}
		mutex := concurrency.NewMutex(session, key)
		if err := mutex.Lock(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(asked))
		if err := mutex.Unlock(ctx); err != nil {
			return nil, err
		}
		if shared == nil {
			if err := session.Close(); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

// handOver contends for one key with a session of its own for each waiter, and
// returns how long each grant came after the release before it.
func handOver(client *clientv3.Client, released *atomic.Int64, end time.Time) ([]time.Duration, error) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ctx := context.Background()
	var took []time.Duration
	for time.Now().Before(end) {
		mutex := concurrency.NewMutex(session, "/peer/handover")
		if err := mutex.Lock(ctx); err != nil {
			return nil, err
		}
		if at := released.Swap(0); at != 0 {
			took = append(took, time.Since(time.Unix(0, at)))
		}
		time.Sleep(time.Millisecond)
		released.Store(time.Now().UnixNano())
		if err := mutex.Unlock(ctx); err != nil {
			return nil, err
		}
	}
	return took, nil
}
