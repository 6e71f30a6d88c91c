package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// attempts limits how often an Update begins again because others saved meanwhile.
const attempts = 10

var (
	// ErrNotFenced matches the error of a state that was saved without a fence, or with the
	// fence of another lock.
	ErrNotFenced = errors.New("fence: the state was not saved with this fence")
	// ErrConflict matches the error of an Update that gave up because others saved first, ten times.
	ErrConflict = errors.New("fence: others save the state all the time")
)

// State is a fence in a state store of Dapr, over Dapr's HTTP API. The value of a key is kept as
//
//	{"fence": KEY, "token": "TOKEN", "value": VALUE}
//
// and saved only if nobody has saved it since it was read (ETag, first-write). The state store
// must support ETags.
type State struct {
	// Store is the name of the state store.
	Store string
	// Endpoint is the URL of daprd or of the sidecar. The default is the variable
	// DAPR_HTTP_ENDPOINT, else http://127.0.0.1 and DAPR_HTTP_PORT, else port 3500.
	Endpoint string
	// APIToken is sent as dapr-api-token. The default is the variable DAPR_API_TOKEN.
	APIToken string
	// Client makes the requests. The default waits for an answer for 10 s.
	Client *http.Client
}

// Stored is what is stored under a key.
type Stored struct {
	// Fence is the key of the fence, as [Key] makes it.
	Fence string
	// Token is the token that it was saved with.
	Token int64
	// Value is the JSON of the value.
	Value json.RawMessage

	etag string
}

// document is the JSON of a Stored. The token is a string: not every language reads 63 bits.
type document struct {
	Fence string          `json:"fence"`
	Token string          `json:"token"`
	Value json.RawMessage `json:"value"`
}

// Load reads a key: nil if there is none. Its error matches [ErrNotFenced] if the value was saved
// without a fence.
func (s *State) Load(ctx context.Context, key string) (*Stored, error) {
	text, etag, err := s.get(ctx, key)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	var read document
	if err := json.Unmarshal(text, &read); err != nil || read.Fence == "" {
		return nil, fmt.Errorf("%w: %s", ErrNotFenced, key)
	}
	token, err := strconv.ParseInt(read.Token, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFenced, key)
	}
	return &Stored{Fence: read.Fence, Token: token, Value: read.Value, etag: etag}, nil
}

// Update passes the value of a key to change, or nil if there is none, and saves the result as
// JSON. It calls change again if somebody else saves meanwhile. Its error is [ErrStaleToken] for a
// smaller token than that of the value, [ErrNotFenced], [ErrConflict], the error of change or the
// error of a request. After an error nothing was saved, unless the answer to a request was lost.
func (s *State) Update(ctx context.Context, holder Holder, key string, change func(value json.RawMessage) (any, error)) error {
	fence, token := Key(holder), holder.Token()
	for range attempts {
		stored, err := s.Load(ctx, key)
		if err != nil {
			return err
		}
		var before json.RawMessage
		if stored != nil {
			if stored.Fence != fence {
				return fmt.Errorf("%w: %s has the fence %s", ErrNotFenced, key, stored.Fence)
			}
			if stored.Token > token {
				return &StaleTokenError{Key: fence, Token: token, Seen: stored.Token}
			}
			before = stored.Value
		}
		value, err := change(before)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		saved, err := s.save(ctx, key, stored, document{fence, strconv.FormatInt(token, 10), text})
		if saved || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s", ErrConflict, key)
}
