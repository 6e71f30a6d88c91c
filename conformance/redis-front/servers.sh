# shellcheck shell=bash disable=SC2034,SC2154
# Starts what the checks run on. Sourced by `run`, which sets `root` and `scratch`.
#
# Each function returns its address or ports in `started`, and adds what it started to `children`,
# which `stop_children` ends.

children=()
started=

stop_children() {
  local child
  for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
  for child in "${children[@]}"; do wait "$child" 2>/dev/null || true; done
  children=()
}

# Not one that the system gives to connections, which could take it before the server listens there,
# nor one that other tests take.
free_port() {
  local port
  for port in $(shuf --input-range=32000-32767 --head-count=100); do
    python3 -c "import socket; socket.create_server(('127.0.0.1', $port))" 2>/dev/null && echo "$port" && return
  done
  return 1
}

# answers PORT LINE PATTERN: whether a server answers to a line as it should.
answers() {
  local reply
  # A subshell, so that a refused connection does not end the script.
  reply=$(exec 2>/dev/null && exec 3<>"/dev/tcp/127.0.0.1/$1" && printf '%b' "$2" >&3 &&
    timeout 2 head -n 1 <&3) || return
  # shellcheck disable=SC2053
  [[ $reply == $3 ]]
}

# ready WHAT CHILD LOG COMMAND...: waits until the command succeeds. 1 if the child has ended.
ready() {
  local what=$1 child=$2 log=$3 deadline=$((SECONDS + 30))
  shift 3
  until "$@"; do
    if ! kill -0 "$child" 2>/dev/null; then
      return 1
    fi
    if ((SECONDS > deadline)); then
      echo "$what did not answer within 30 s:" >&2
      tail -n 20 "$log" >&2
      exit 1
    fi
    sleep 0.05
  done
}

# On a port that another program took meanwhile, a server ends; then it is started again.
start_redis_server() {
  local port log=$scratch/redis-server.log
  for _ in 1 2 3; do
    port=$(free_port)
    redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no \
      --dir "$scratch" >"$log" 2>&1 &
    children+=($!)
    started=127.0.0.1:$port
    ready redis-server $! "$log" answers "$port" 'PING\r\n' '+PONG*' && return
  done
  tail -n 20 "$log" >&2
  exit 1
}

start_etcd_server() {
  local client peer log=$scratch/etcd.log program
  program=$(command -v etcd || true)
  [[ -n $program ]] || program=$root/target/etcd36/etcd
  for _ in 1 2 3; do
    client=$(free_port) peer=$(free_port)
    "$program" --name one --data-dir "$scratch/etcd-$client" \
      --listen-client-urls "http://127.0.0.1:$client" \
      --advertise-client-urls "http://127.0.0.1:$client" \
      --listen-peer-urls "http://127.0.0.1:$peer" \
      --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
      --initial-cluster "one=http://127.0.0.1:$peer" >"$log" 2>&1 &
    children+=($!)
    started=127.0.0.1:$client
    ready etcd $! "$log" answers "$client" 'GET /health HTTP/1.0\r\n\r\n' '*200*' && return
  done
  tail -n 20 "$log" >&2
  exit 1
}

# start_front BACKEND: the store's server and a front before it.
start_front() {
  local backend=$1 key value folder=$scratch/$1 log=$scratch/front-$1.log
  case $backend in
    memory) key=ttl value=30s ;;
    redis) start_redis_server && key=redisHost value=$started ;;
    etcd) start_etcd_server && key=endpoints value=$started ;;
    *) echo "redis-front/run: there is no backend $backend" >&2 && exit 64 ;;
  esac
  mkdir -p "$folder"
  cat >"$folder/locks.yaml" <<EOF
apiVersion: dapr.io/v1alpha1
kind: Component
metadata: { name: locks }
spec:
  type: lock.$backend
  version: v1
  metadata:
    - { name: $key, value: "$value" }
EOF
  "$LEASEHOLD" redis-front --store locks --resources-path "$folder" \
    --listen 127.0.0.1:0 >"$log" 2>&1 &
  children+=($!)
  if ! ready "the front on $backend" $! "$log" grep -qs 'listening.*address=' "$log"; then
    echo "the front on $backend ended:" >&2
    tail -n 20 "$log" >&2
    exit 1
  fi
  started=$(grep -o 'address=[0-9.]*:[0-9]*' "$log" | head -n 1)
  started=${started#address=}
}

# start_lossy_proxy ADDRESS: `started` becomes its port and its control port.
start_lossy_proxy() {
  local log=$scratch/lossy-proxy.log
  # `ready` must not find the ports of an earlier proxy.
  rm -f "$log"
  # It ends with its standard input, and so with this script.
  mkfifo "$scratch/lossy-proxy.stdin"
  python3 "$here/lossy_proxy.py" "$1" <"$scratch/lossy-proxy.stdin" >"$log" 2>&1 &
  children+=($!)
  exec {proxy_input}>"$scratch/lossy-proxy.stdin"
  rm "$scratch/lossy-proxy.stdin"
  ready "the lossy proxy" $! "$log" grep -qs '^[0-9]* [0-9]*$' "$log"
  started=$(<"$log")
}
