"""Runs a program beside a test sidecar: on_stage.py LAUNCHER PROGRAM; prints its output on one line."""

import json
import os
import subprocess
import sys

with subprocess.Popen([sys.argv[1], "memory"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
    ports = json.loads(launcher.stdout.readline())
    environment = {**os.environ, "DAPR_GRPC_PORT": str(ports["grpcPort"]), "DAPR_HTTP_PORT": str(ports["httpPort"])}
    done = subprocess.run(sys.argv[2:], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    launcher.stdin.close()
lines = [line for line in done.stdout.splitlines() if line.startswith("token ")]
if done.returncode != 0 or not lines:
    sys.exit(f"{sys.argv[2]} ended with {done.returncode}:\n{done.stdout}")
print(", ".join(lines))
