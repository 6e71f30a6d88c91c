package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	runtime "github.com/dapr/dapr/pkg/proto/runtime/v1"
	"google.golang.org/grpc/status"
)

// callLimit is after how long a call counts as hung: longer than the connector's own deadline.
const callLimit = 15 * time.Second

// The statuses of an unlock.
const (
	released        = 0
	doesNotExist    = 1
	belongsToOthers = 2
)

// api is Dapr's alpha1 lock API.
type api interface {
	tryLock(store, resource, owner string, expirySeconds int32) (bool, error)
	unlock(store, resource, owner string) (int, error)
}

// refusal is an error as the API returns it: HTTP's errorCode, or gRPC's code.
type refusal struct{ code, message string }

func (r refusal) Error() string { return r.code + ": " + r.message }

type grpcAPI struct{ client runtime.DaprClient }

func (a grpcAPI) tryLock(store, resource, owner string, expirySeconds int32) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	response, err := a.client.TryLockAlpha1(ctx, &runtime.TryLockRequest{
		StoreName: store, ResourceId: resource, LockOwner: owner, ExpiryInSeconds: expirySeconds,
	})
	return response.GetSuccess(), grpcRefusal(err)
}

func (a grpcAPI) unlock(store, resource, owner string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	response, err := a.client.UnlockAlpha1(ctx, &runtime.UnlockRequest{
		StoreName: store, ResourceId: resource, LockOwner: owner,
	})
	return int(response.GetStatus()), grpcRefusal(err)
}

func grpcRefusal(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	return refusal{s.Code().String(), s.Message()}
}

type httpAPI struct{ url string }

func (a httpAPI) tryLock(store, resource, owner string, expirySeconds int32) (bool, error) {
	var answer struct{ Success bool }
	err := a.post("lock/"+store, map[string]any{
		"resourceId": resource, "lockOwner": owner, "expiryInSeconds": expirySeconds,
	}, &answer)
	return answer.Success, err
}

func (a httpAPI) unlock(store, resource, owner string) (int, error) {
	answer := struct{ Status int }{-1}
	err := a.post("unlock/"+store, map[string]any{"resourceId": resource, "lockOwner": owner}, &answer)
	return answer.Status, err
}

func (a httpAPI) post(path string, body, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: callLimit}
	response, err := client.Post(a.url+"/v1.0-alpha1/"+path, "application/json", bytes.NewReader(sent))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		var refused struct{ ErrorCode, Message string }
		if err := json.Unmarshal(text, &refused); err != nil {
			return fmt.Errorf("status %d with %q", response.StatusCode, text)
		}
		return refusal{refused.ErrorCode, refused.Message}
	}
	return json.Unmarshal(text, answer)
}

func expectTry(t *testing.T, a api, store, resource, owner string, expirySeconds int32, want bool) {
	t.Helper()
	if err := tried(a, store, resource, owner, expirySeconds, want); err != nil {
		t.Error(err)
	}
}

// tried is nil if a try is answered with want.
func tried(a api, store, resource, owner string, expirySeconds int32, want bool) error {
	got, err := a.tryLock(store, resource, owner, expirySeconds)
	if err != nil || got != want {
		return fmt.Errorf("a try of %q by %q answered %v, %v, not %v", resource, owner, got, err, want)
	}
	return nil
}

func expectUnlock(t *testing.T, a api, store, resource, owner string, want int) {
	t.Helper()
	if got, err := a.unlock(store, resource, owner); err != nil || got != want {
		t.Errorf("an unlock of %q by %q answered %v, %v, not %v", resource, owner, got, err, want)
	}
}

// expectRefusal checks an error's code, one of those given, and its text.
func expectRefusal(t *testing.T, err error, message string, codes ...string) {
	t.Helper()
	var refused refusal
	if !errors.As(err, &refused) {
		t.Errorf("it answered %v instead of a refusal", err)
		return
	}
	for _, code := range codes {
		if refused.code == code && strings.Contains(refused.message, message) {
			return
		}
	}
	t.Errorf("it was refused with %q, not with %v and %q", refused, codes, message)
}
