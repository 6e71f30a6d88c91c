#!/usr/bin/env bash
# Makes lock.pb.go and lock_grpc.pb.go from proto/ with pinned generators.
set -euo pipefail
cd "$(dirname "$0")"

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
GOBIN=$bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1

source=dapr/proto/components/v1/lock.proto
package="leasehold/conformance/daprd/lockpb;lockpb"
PATH=$bin:$PATH protoc --proto_path=../../../proto \
  --go_out=. --go_opt="module=leasehold/conformance/daprd/lockpb,M$source=$package" \
  --go-grpc_out=. --go-grpc_opt="module=leasehold/conformance/daprd/lockpb,M$source=$package" \
  "$source"
