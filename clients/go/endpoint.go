package leasehold

import (
	"crypto/tls"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const defaultPort = "50001"

// reconnects keeps the pauses short: the sidecar is near, and is back soon after a restart.
var reconnects = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// pings end a connection that died without a reset.
var pings = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}

// endpointFromEnvironment is DAPR_GRPC_ENDPOINT, else DAPR_GRPC_PORT of this host, else port 50001.
// It also returns the name of the variable.
func endpointFromEnvironment() (variable, endpoint string, err error) {
	variable = "DAPR_GRPC_ENDPOINT"
	if endpoint = os.Getenv(variable); endpoint != "" {
		return variable, endpoint, nil
	}
	variable = "DAPR_GRPC_PORT"
	port := os.Getenv(variable)
	if port == "" {
		port = defaultPort
	}
	if !isPort(port) {
		return "", "", invalid(variable, "is not a number from 1 to 65535: "+strconv.Quote(port))
	}
	return variable, net.JoinHostPort("127.0.0.1", port), nil
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

// dial makes a connection, which is established by the first call. source is where the endpoint comes from.
func dial(source, endpoint string) (*grpc.ClientConn, error) {
	target, secure, err := parseEndpoint(source, endpoint)
	if err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if secure {
		transport = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(transport), grpc.WithConnectParams(reconnects),
		grpc.WithKeepaliveParams(pings))
	if err != nil {
		return nil, invalid(source, "is not a valid address: "+err.Error())
	}
	return conn, nil
}

// parseEndpoint returns what gRPC calls the target, and whether to use TLS.
func parseEndpoint(source, endpoint string) (target string, secure bool, err error) {
	if strings.HasPrefix(endpoint, "unix:") {
		return endpoint, false, nil
	}
	address, port := endpoint, ""
	if rest, ok := strings.CutPrefix(endpoint, "http://"); ok {
		address, port = strings.TrimSuffix(rest, "/"), "80"
	} else if rest, ok := strings.CutPrefix(endpoint, "https://"); ok {
		address, port, secure = strings.TrimSuffix(rest, "/"), "443", true
	}
	if host, explicit, err := net.SplitHostPort(address); err == nil && explicit != "" && !strings.ContainsAny(host+explicit, "/?@") {
		if !isPort(explicit) {
			return "", false, invalid(source, "has a port that is not a number from 1 to 65535: "+strconv.Quote(endpoint))
		}
		return address, secure, nil
	}
	if port == "" || address == "" || strings.ContainsAny(address, "/?@") {
		return "", false, invalid(source, "is not host:port, http://…, https://… or unix:…: "+strconv.Quote(endpoint))
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), port), secure, nil
}
