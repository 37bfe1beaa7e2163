#!/usr/bin/env bash
# Do other implementations of OpenTelemetry understand what Lens sends, and Lens what they send?
#
#   run.sh COLLECTOR_BINARY DRIVER_BINARY GRPO_BINARY
#
# The peers are a Collector, rotel and Python. Needs Python 3.11 with venv, and jq. Fetches what
# requirements.txt names the first time. Takes about four minutes on two cores.
set -euo pipefail
[ $# = 3 ] || { echo "usage: $0 COLLECTOR_BINARY DRIVER_BINARY GRPO_BINARY" >&2; exit 2; }
collector=$(realpath -- "$1") driver=$(realpath -- "$2") grpo=$(realpath -- "$3")
cd "$(dirname "$0")/../.."
peers=$PWD/tests/peers
. "$peers/scratch.sh"
python=$PWD/target/peers/bin/python
[ -x "$python" ] || python3 -m venv target/peers
"$python" -m pip install -q --disable-pip-version-check -r "$peers/requirements.txt"

cd "$work"
printf 'telemetry:\n  enabled: true\n  span_groups: all\n  logs_enabled: true\n  exporter: otlp\n' > run.yaml
receive() { # receive PEER PROTOCOL SCENARIO
  run "$python" "$peers/receive.py" "$collector" received "$1" "$2" "$driver" "$3" run.yaml
}

echo "== a comparison that can fail"
"$python" "$peers/ledger_test.py" --quiet

echo "== what a Collector and rotel receive is what the program counted"
for protocol in grpc http/protobuf http/json; do receive collector $protocol ledger; done
for protocol in grpc http/protobuf; do receive rotel $protocol ledger; done
# By this protocol rotel refuses what is not finite: see receive.py.
receive rotel http/json finite

echo "== of what a share is kept, whole subtrees arrive, and the same ones each time"
run "$python" "$peers/thinned.py" "$collector" "$driver"

echo "== one trace with a Python program, both ways"
run "$python" "$peers/python_trace.py" "$collector" "$driver"

run "$peers/trainer.sh" "$collector" "$grpo" "$python"
