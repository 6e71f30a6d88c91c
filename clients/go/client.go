package leasehold

import (
	"context"
	"os"

	"google.golang.org/grpc"
)

// Locks takes locks of one store. It may be used by any number of goroutines, and should be
// shared: all its calls go over one connection, which is replaced when it does not answer.
type Locks struct {
	store    string
	conn     *connection
	remedy   string // what to do about a wrong address, if the connection is not the caller's
	apiToken string
}

// ClientOption changes how the sidecar is called.
type ClientOption func(*clientOptions)

type clientOptions struct {
	endpoint *string
	conn     grpc.ClientConnInterface
	apiToken *string
}

// WithEndpoint calls the sidecar at this address: host:port, http://…, https://… for TLS with the
// system's certificates, or unix:…. The default is the variable DAPR_GRPC_ENDPOINT, else
// 127.0.0.1 and DAPR_GRPC_PORT, else 127.0.0.1:50001.
func WithEndpoint(endpoint string) ClientOption {
	return func(o *clientOptions) { o.endpoint = &endpoint }
}

// WithConn calls the sidecar over a connection of the caller, which Close leaves open.
// With Dapr's SDK it is the client's GrpcClientConn().
func WithConn(conn grpc.ClientConnInterface) ClientOption {
	return func(o *clientOptions) { o.conn = conn }
}

// WithAPIToken sends this token with every call, as the metadata dapr-api-token; an empty one is
// not sent. The default is the variable DAPR_API_TOKEN.
func WithAPIToken(token string) ClientOption {
	return func(o *clientOptions) { o.apiToken = &token }
}

// New makes a client for the store of this name, as the sidecar's component YAML has it. It does
// not connect: the first call does. It fails with an [*Error] if the name is empty, or if the
// address, which may come from a variable, is invalid.
func New(store string, chosen ...ClientOption) (*Locks, error) {
	o := &clientOptions{}
	for _, choose := range chosen {
		choose(o)
	}
	if store == "" {
		return nil, invalid("store", "is empty")
	}
	c := &Locks{store: store, apiToken: os.Getenv("DAPR_API_TOKEN")}
	if o.apiToken != nil {
		c.apiToken = *o.apiToken
	}
	c.conn = &connection{}
	c.conn.open, c.conn.end = context.WithCancel(context.Background())
	if o.conn != nil {
		c.conn.current = &link{ClientConnInterface: o.conn}
		return c, nil
	}
	source, endpoint := "endpoint", ""
	if o.endpoint != nil {
		endpoint = *o.endpoint
		c.remedy = "give WithEndpoint another address"
	} else {
		var err error
		if source, endpoint, err = endpointFromEnvironment(); err != nil {
			return nil, err
		}
		c.remedy = "set DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT"
	}
	conn, err := dial(source, endpoint)
	if err != nil {
		return nil, err
	}
	c.conn.source, c.conn.endpoint = source, endpoint
	c.conn.current, c.conn.old = &link{ClientConnInterface: conn, own: conn}, map[*link]struct{}{}
	return c, nil
}

// Close ends all waits and locks of this client, and closes the connection, unless it is the
// caller's. The locks are lost, and released by the sidecar. Later calls fail with the reason CANCELLED.
func (c *Locks) Close() error { return c.conn.close() }
