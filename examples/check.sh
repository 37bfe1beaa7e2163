#!/usr/bin/env bash
# Does the example trainer do what the README says of it?
#
#   examples/check.sh [SEED…]      seeds other than 0 to 4 are tried in their place; the first must be 0
#
# Learns for any seed, is judged by a second process, leaves complete files, trains the same with
# any exporter and with none, resumes exactly, and refuses bad input before it trains.
# Needs jq and strace. Takes about three minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --example grpo
grpo=$PWD/target/release/examples/grpo
config=$PWD/examples/configs/grpo.yaml
complete=$PWD/examples/complete.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export RAYON_NUM_THREADS=1
unset RUST_BACKTRACE

fail() { echo "FAILED: $*" >&2; exit 1; }
train() { "$grpo" --config "$config" "$@"; } # train ARGUMENTS: in this folder

echo "== learns, for any seed, as a second process finds from the checkpoint"
[ $# -gt 0 ] || set -- 0 1 2 3 4
for seed; do
  began=$SECONDS
  LENS_RUN_ID=seed-$seed train --seed $seed --checkpoint-dir "checkpoints-$seed" --rewards "rewards-$seed" \
    > "report-$seed" 2> /dev/null
  took=$((SECONDS - began))
  before=$(sed -n 's/^before training: .*: //p' "report-$seed")
  after=$("$grpo" --config "$config" --seed 99 --evaluate "checkpoints-$seed/step-000100.safetensors" \
    | sed -n 's/^greedy accuracy .*: //p')
  echo "seed $seed: $before before, $after after training, $took s"
  jq -en "$before < 0.05 and $after >= 0.9 and $took <= 120" > /dev/null || fail "seed $seed does not learn"
done

"$complete" runs/seed-0 rewards-0

echo "== training is the same, number for number, with every exporter and with none"
mkdir console file off
for how in console file off; do
  case $how in off) override=telemetry.enabled=false ;; *) override=++telemetry.exporter=$how ;; esac
  (cd $how && train --steps 20 --rewards rewards $override > stdout 2> /dev/null)
  head -n 20 rewards-0 | cmp - $how/rewards || fail "rewards differ with $override"
done
jq -R 'fromjson? // empty | objects | select(has("parent_id")) | .name' -r console/stdout | grep -qx rl.grpo.step \
  || fail "the console shows no step"
[ ! -e console/runs ] || fail "the console exporter wrote files"

echo "== off opens no socket and writes no file"
(cd off && strace -f -qq -e trace=socket,connect,openat -o trace "$grpo" --config "$config" --steps 2 \
  --checkpoint-dir checkpoints telemetry.enabled=false > /dev/null 2>&1)
! grep -E 'socket\(|connect\(' off/trace || fail "a socket was opened"
! grep -E 'O_CREAT' off/trace | grep -vE '/off/checkpoints/|"checkpoints/|"/dev/' || fail "a file was written"

echo "== resumes exactly"
train --steps 10 --checkpoint-dir half telemetry.enabled=false > /dev/null 2>&1
train --steps 20 --checkpoint-dir half --resume half/step-000010.safetensors --rewards resumed \
  telemetry.enabled=false > /dev/null 2>&1
sed -n 11,20p rewards-0 | cmp - resumed || fail "a resumed run differs"

echo "== bad input ends the run before it trains, with one error"
refuse() { # refuse EXPECTED ARGUMENTS...
  local expected=$1; shift
  if "$grpo" "$@" > stdout 2> stderr; then fail "accepted: $*"; fi
  grep -qF -- "$expected" stderr || { cat stderr >&2; fail "expected: $expected"; }
  [ ! -s stdout ] && [ "$(grep -c . stderr)" -le 3 ] || { cat stderr >&2; fail "more than one error"; }
}
sed 's/span_groups:/span_group:/' "$config" > key.yaml
sed 's/per_step /per_stop /' "$config" > group.yaml
sed 's/enabled: true/enabled: [true/' "$config" > broken.yaml
refuse 'key.yaml:39:3: unknown key telemetry.span_group; did you mean "span_groups"?' --config key.yaml
refuse 'group.yaml:39:16: unknown span group "per_stop" in telemetry.span_groups; did you mean "per_step"?' --config group.yaml
refuse 'broken.yaml:39:14: not valid YAML' --config broken.yaml
refuse 'unknown exporter "consol" in telemetry.exporter; did you mean "console"?' --config "$config" ++telemetry.exporter=consol
touch in-the-way
refuse 'write to the run folder in-the-way/' --config "$config" telemetry.directory=in-the-way

echo "all holds"
