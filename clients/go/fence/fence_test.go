package fence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/fence"
)

var _ fence.Holder = (*leasehold.Lock)(nil)

func ticket(token int64) fence.Ticket {
	return fence.Ticket{LockStore: "lockstore", Lock: "order-1", FencingToken: token}
}

func TestDifferentLocksHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	keys := map[string]fence.Ticket{}
	for _, holder := range []fence.Ticket{
		{LockStore: "s", Lock: "a"},
		{LockStore: "s", Lock: "a/b"},
		{LockStore: "s", LockNamespace: []string{"a"}, Lock: "b"},
		{LockStore: "s", LockNamespace: []string{"a", "b"}, Lock: "c"},
		{LockStore: "s", LockNamespace: []string{"a/b"}, Lock: "c"},
		{LockStore: "s", LockNamespace: []string{"a"}, Lock: "b//c"},
		{LockStore: "s", Lock: "a//b"},
		{LockStore: "s|", Lock: "a"},
		{LockStore: "s", Lock: "|a"},
		{LockStore: "s", Lock: "%7Ca"},
	} {
		key := fence.Key(holder)
		if other, taken := keys[key]; taken {
			t.Errorf("%+v and %+v both have %s", holder, other, key)
		}
		keys[key] = holder
	}
	if key := fence.Key(fence.Ticket{LockStore: "s", LockNamespace: []string{"shop", "e/u"}, Lock: "o%1"}); key != "s||shop/e%2Fu//o%251" {
		t.Errorf("the key is %s", key)
	}
}

// stateServer is Dapr's state API, as far as a fence uses it.
type stateServer struct {
	sync.Mutex
	values map[string]json.RawMessage
	etags  map[string]int
	before func() // called once, before the next save
}

func (s *stateServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.Lock()
		defer s.Unlock()
		key := strings.TrimPrefix(r.URL.Path, "/v1.0/state/statestore/")
		value, found := s.values[key]
		if !found {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("ETag", strconv.Itoa(s.etags[key]))
		_, _ = w.Write(value)
		return
	}
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	s.Lock()
	defer s.Unlock()
	var items []struct {
		Key     string
		Value   json.RawMessage
		ETag    string
		Options map[string]string
	}
	if err := json.NewDecoder(r.Body).Decode(&items); err != nil || items[0].Options["concurrency"] != "first-write" {
		http.Error(w, "a bad request", http.StatusBadRequest)
		return
	}
	etag, found := s.etags[items[0].Key]
	if found && items[0].ETag == "" {
		// As Dapr's Redis answers.
		http.Error(w, "failed to set key", http.StatusInternalServerError)
		return
	}
	if found && strconv.Itoa(etag) != items[0].ETag {
		http.Error(w, "possible etag mismatch", http.StatusConflict)
		return
	}
	s.values[items[0].Key], s.etags[items[0].Key] = items[0].Value, etag+1
	w.WriteHeader(http.StatusNoContent)
}

func startStateServer(t *testing.T) (*stateServer, *fence.State) {
	t.Helper()
	s := &stateServer{values: map[string]json.RawMessage{}, etags: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, &fence.State{Store: "statestore", Endpoint: server.URL}
}

func set(value string) func(json.RawMessage) (any, error) {
	return func(json.RawMessage) (any, error) { return value, nil }
}

func value(t *testing.T, state *fence.State) string {
	t.Helper()
	stored, err := state.Load(t.Context(), "order-1")
	if err != nil || stored == nil {
		t.Fatalf("%v %v", stored, err)
	}
	return string(stored.Value)
}

func TestANewerHolderThatSavesMeanwhileIsSeen(t *testing.T) {
	t.Parallel()
	server, state := startStateServer(t)
	server.before = func() {
		if err := state.Update(context.Background(), ticket(2), "order-1", set("second")); err != nil {
			t.Error(err)
		}
	}
	err := state.Update(t.Context(), ticket(1), "order-1", set("first"))
	var stale *fence.StaleTokenError
	if !errors.As(err, &stale) || stale.Seen != 2 || stale.Token != 1 {
		t.Errorf("the stale update: %v", err)
	}
	if value := value(t, state); value != `"second"` {
		t.Errorf("the value is %s", value)
	}
}

func TestAChangeBeginsAgainAfterAnotherOfTheSameHolder(t *testing.T) {
	t.Parallel()
	server, state := startStateServer(t)
	add := func(value json.RawMessage) (any, error) { return append([]byte{}, fmt.Sprintf("%s+", value)...), nil }
	server.before = func() {
		if err := state.Update(context.Background(), ticket(1), "order-1", add); err != nil {
			t.Error(err)
		}
	}
	calls := 0
	err := state.Update(t.Context(), ticket(1), "order-1", func(json.RawMessage) (any, error) {
		calls++
		return calls, nil
	})
	if err != nil || calls != 2 || value(t, state) != "2" {
		t.Errorf("%d calls left %s: %v", calls, value(t, state), err)
	}
}

func TestAStateOfAnotherFenceIsRefused(t *testing.T) {
	t.Parallel()
	server, state := startStateServer(t)
	server.values["order-1"], server.etags["order-1"] = json.RawMessage(`{"paid":true}`), 1
	if err := state.Update(t.Context(), ticket(1), "order-1", set("first")); !errors.Is(err, fence.ErrNotFenced) {
		t.Errorf("a state without a fence: %v", err)
	}
	server.values["order-1"] = json.RawMessage(`{"fence":"lockstore||order-2","token":"1","value":1}`)
	if err := state.Update(t.Context(), ticket(1), "order-1", set("first")); !errors.Is(err, fence.ErrNotFenced) {
		t.Errorf("a state with another fence: %v", err)
	}
}

func TestTheErrorOfAChangeIsPassedOn(t *testing.T) {
	t.Parallel()
	_, state := startStateServer(t)
	failed := errors.New("the change failed")
	if err := state.Update(t.Context(), ticket(1), "order-1", func(json.RawMessage) (any, error) { return nil, failed }); err != failed {
		t.Errorf("Update returned %v", err)
	}
	if stored, err := state.Load(t.Context(), "order-1"); stored != nil || err != nil {
		t.Errorf("it left %v %v", stored, err)
	}
}
