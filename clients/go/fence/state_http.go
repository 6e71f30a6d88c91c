package fence

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

var defaultClient = &http.Client{Timeout: 10 * time.Second}

// item is an entry of a request that saves states.
type item struct {
	Key     string   `json:"key"`
	Value   document `json:"value"`
	ETag    *string  `json:"etag,omitempty"`
	Options options  `json:"options"`
}

type options struct {
	Concurrency string `json:"concurrency"`
	Consistency string `json:"consistency"`
}

// get reads the text and the ETag of a key. The text is empty if there is no such key.
func (s *State) get(ctx context.Context, key string) ([]byte, string, error) {
	status, text, header, err := s.call(ctx, http.MethodGet, "/"+url.PathEscape(key)+"?consistency=strong", nil)
	if err != nil {
		return nil, "", err
	}
	if status != http.StatusOK && status != http.StatusNoContent {
		return nil, "", failed(status, text)
	}
	return text, header.Get("ETag"), nil
}

// save writes a key, unless somebody has written it since it was read as before: nil if it did not
// exist.
func (s *State) save(ctx context.Context, key string, before *Stored, value document) (bool, error) {
	entry := item{Key: key, Value: value, Options: options{"first-write", "strong"}}
	if before != nil && before.etag != "" {
		entry.ETag = &before.etag
	}
	body, err := json.Marshal([]item{entry})
	if err != nil {
		return false, err
	}
	status, text, _, err := s.call(ctx, http.MethodPost, "", body)
	switch {
	case err != nil:
		return false, err
	case status == http.StatusConflict:
		return false, nil
	case status == http.StatusNoContent || status == http.StatusOK:
		return true, nil
	case before == nil:
		// Some stores, Redis among them, report a lost race of first-write as a failure.
		if now, _, err := s.get(ctx, key); err == nil && len(now) > 0 {
			return false, nil
		}
	}
	return false, failed(status, text)
}

func failed(status int, text []byte) error {
	return fmt.Errorf("fence: Dapr answers %d: %s", status, text)
}

func (s *State) call(ctx context.Context, method, path string, body []byte) (int, []byte, http.Header, error) {
	address := s.endpoint() + "/v1.0/state/" + url.PathEscape(s.Store) + path
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := either(s.APIToken, os.Getenv("DAPR_API_TOKEN")); token != "" {
		request.Header.Set("dapr-api-token", token)
	}
	client := s.Client
	if client == nil {
		client = defaultClient
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, text, response.Header, err
}

func (s *State) endpoint() string {
	if endpoint := either(s.Endpoint, os.Getenv("DAPR_HTTP_ENDPOINT")); endpoint != "" {
		return strings.TrimSuffix(endpoint, "/")
	}
	return "http://127.0.0.1:" + either(os.Getenv("DAPR_HTTP_PORT"), "3500")
}

func either(first, second string) string {
	if first != "" {
		return first
	}
	return second
}
