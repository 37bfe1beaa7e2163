#!/usr/bin/env bash
# Does a training run arrive whole at a Collector, and train the same when nobody takes its telemetry?
#
#   trainer.sh COLLECTOR_BINARY GRPO_BINARY PYTHON
#
# PYTHON has what requirements.txt names. Takes about three minutes on two cores. Needs jq.
set -euo pipefail
[ $# = 3 ] || { echo "usage: $0 COLLECTOR_BINARY GRPO_BINARY PYTHON" >&2; exit 2; }
collector=$(realpath -- "$1") grpo=$(realpath -- "$2") python=$(realpath -s -- "$3")
cd "$(dirname "$0")/../.."
. tests/peers/scratch.sh
peer=$PWD/tests/peers/peer.py
complete=$PWD/examples/complete.sh
config=$PWD/examples/configs/grpo.yaml
cd "$work"
export RAYON_NUM_THREADS=1
# A run with telemetry may take this much longer than one without: five seconds until the shutdown
# gives up, the rest for a machine that does something else as well.
patience=30

fail() { cat errors >&2; echo "FAILED: $*" >&2; exit 1; }
train() { # train PEER PROTOCOL ARGUMENTS: what the Collector receives is in the folder PEER
  rm -rf "$1"
  run "$python" "$peer" "$collector" "$1" "$1" "$2" \
    "$grpo" --config "$config" --seed 0 ++telemetry.exporter=otlp ++telemetry.logs_enabled=true "${@:3}" > /dev/null 2> errors
}

echo "== without telemetry"
began=$SECONDS
run "$grpo" --config "$config" --seed 0 --steps 20 --rewards off telemetry.enabled=false > /dev/null 2> errors \
  || fail "no training"
limit=$((SECONDS - began + patience))

for protocol in grpc http/protobuf; do
  for present in collector rotel; do
    echo "== over $protocol to a peer that is a $present: complete, and the same training"
    train $present $protocol --rewards up || fail "no training over $protocol"
    "$complete" $present up
    head -n 20 up | cmp off - || fail "rewards differ over $protocol"
  done
  for absent in nobody deaf; do
    echo "== over $protocol to a peer that is $absent: the same training, and an end"
    began=$SECONDS
    train $absent $protocol --steps 20 --rewards $absent.rewards || fail "no training"
    cmp off $absent.rewards || fail "rewards differ"
    [ $((SECONDS - began)) -le $limit ] || fail "took $((SECONDS - began)) s, where $limit s are enough"
  done
done
