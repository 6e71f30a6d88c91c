#!/bin/sh
# Runs the conformance suite on store.py: sets up a Python environment under
# target/, generates the stubs, serves on a temporary socket, runs the suite.
# Arguments go to leasehold-conformance. Needs python3 with venv, and cargo, or what CARGO names.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cargo=${CARGO:-cargo}
# Cargo takes the variable for the path of itself.
unset CARGO
home=${CARGO_TARGET_DIR:-$root/target}/thirdparty
venv=$home/venv
stubs=$home/stubs

mkdir -p "$stubs"
if ! cmp -s "$here/requirements.txt" "$home/installed.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$home/installed.txt"
fi
"$venv/bin/python" -m grpc_tools.protoc -I "$root/proto" \
    --python_out="$stubs" --grpc_python_out="$stubs" \
    dapr/proto/components/v1/lock.proto dapr/proto/components/v1/common.proto
(cd "$root" && $cargo build --quiet --workspace --bin leasehold-conformance)

folder=$(mktemp -d)
socket=$folder/thirdparty.sock
"$venv/bin/python" "$here/store.py" "$stubs" "$socket" &
store=$!
trap 'kill "$store" 2>/dev/null || true; rm -rf "$folder"' EXIT INT TERM

tries=0
until [ -S "$socket" ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ] || ! kill -0 "$store" 2>/dev/null; then
        echo "store.py did not open $socket within 60 s" >&2
        exit 1
    fi
    sleep 0.1
done

"${CARGO_TARGET_DIR:-$root/target}/debug/leasehold-conformance" \
    --socket "$socket" --resource "$here/component.yaml" "$@"
