#!/usr/bin/env bash
# Does an OpenTelemetry Collector understand the files of a run, record for record?
#
#   replay.sh COLLECTOR_BINARY DIR
#
# A Collector reads DIR/{traces,metrics,logs}-*.jsonl and writes what it understood to
# DIR/replayed/{traces,metrics,logs}.jsonl. Exit 1, with the difference, unless both say the same.
set -euo pipefail
export LC_ALL=C

[ $# = 2 ] || { echo "usage: $0 COLLECTOR_BINARY DIR" >&2; exit 2; }
collector=$(realpath -- "$1")
cd -- "$2" # From here on paths are relative: no path of the user's in the configuration below.
shopt -s nullglob
rm -rf replayed
mkdir replayed

# The receiver has its defaults, as a user would run it, but for two: `start_at` (its default is
# to skip what is in a file already), and the attribute `log.file.name`, which it would add to
# each record. Its limit of 1 MiB for a line is left alone: it drops a longer one without a word.
cat > replayed/config.yaml <<'YAML'
receivers:
  otlp_json_file/traces: { include: ["traces-*.jsonl"], start_at: beginning, include_file_name: false }
  otlp_json_file/metrics: { include: ["metrics-*.jsonl"], start_at: beginning, include_file_name: false }
  otlp_json_file/logs: { include: ["logs-*.jsonl"], start_at: beginning, include_file_name: false }
exporters:
  file/traces: { path: replayed/traces.jsonl, format: json, flush_interval: 100ms }
  file/metrics: { path: replayed/metrics.jsonl, format: json, flush_interval: 100ms }
  file/logs: { path: replayed/logs.jsonl, format: json, flush_interval: 100ms }
service:
  telemetry: { metrics: { level: none } }
  pipelines:
    traces: { receivers: [otlp_json_file/traces], exporters: [file/traces] }
    metrics: { receivers: [otlp_json_file/metrics], exporters: [file/metrics] }
    logs: { receivers: [otlp_json_file/logs], exporters: [file/logs] }
YAML

# One object for each span, data point or log record, with all that its groups say about it. How
# records are grouped into lines, resources and scopes is not part of what they say (the protocol
# lets anyone in between group them anew), nor is their order; so they are sorted.
# Attributes are compared in their order, ids in their case and 64-bit integers with their quotes:
# the Collector keeps the first, and writes the others as the protocol says that we should.
program='
def records:
  (.resourceSpans // .resourceMetrics // .resourceLogs)[] | . as $r
  | (.scopeSpans // .scopeMetrics // .scopeLogs // [])[] | . as $s
  | {resource: $r.resource, resourceSchemaUrl: $r.schemaUrl, scope: $s.scope, scopeSchemaUrl: $s.schemaUrl}
    + ( ((.spans // .logRecords // [])[] | {record: .})
      , ( (.metrics // [])[] | . as $m
        | ("gauge", "sum", "histogram", "exponentialHistogram", "summary") as $kind
        | select(has($kind)) | (.[$kind].dataPoints // [])[]
        | {record: ., metric: ($m | .[$kind] |= del(.dataPoints))} ) );

# proto3 does not tell a field that is absent from one that has the default of its type, and its
# JSON may do either, so that an entry with a default is dropped. But where presence means
# something it stays: which value a oneof holds (0 is not ""), and the `optional` sum, min, max.
def present: IN("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue", "arrayValue",
  "kvlistValue", "asInt", "asDouble", "gauge", "histogram", "exponentialHistogram", "summary",
  "min", "max");
def default: IN(null, 0, "0", "", false, [], {});
def same:
  if type == "object" then
    # `sum` is a number in a data point and a kind of metric, both with presence.
    map_values(same) | with_entries(select((.key | present or . == "sum") or (.value | default | not)))
  elif type == "array" then map(same)
  # 1.0 is 1, 0.00001 is 1e-05: jq 1.6 reads doubles, later ones keep the text until they compute.
  elif type == "number" then . * 1
  else . end;
'
count() { # FILE...: how many records; 0 while a last line is half written.
  if [ $# = 0 ]; then echo 0; else jq -n "$program"'[inputs | records] | length' "$@" 2>/dev/null || echo 0; fi
}
normal() { # FILE...
  if [ $# != 0 ]; then jq -nS "$program"'[inputs | records | same] | sort[]' "$@"; fi
}
signals=(traces metrics logs)

declare -A wanted
for signal in "${signals[@]}"; do
  files=("$signal"-*.jsonl)
  # A file that is no JSON has no count: say so here, not as a difference.
  if [ ${#files[@]} != 0 ]; then jq -n '[inputs] | empty' "${files[@]}"; fi
  wanted[$signal]=$(count "${files[@]}")
done
((wanted[traces] + wanted[metrics] + wanted[logs] > 0)) || { echo "no records in $PWD" >&2; exit 1; }

"$collector" --config replayed/config.yaml > replayed/collector.log 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null || true' EXIT
arrived() {
  for signal in "${signals[@]}"; do
    files=(replayed/"$signal".jsonl*) # A pattern, so that a missing file is no file.
    [ "$(count "${files[@]}")" -ge "${wanted[$signal]}" ] || return 1
  done
}
deadline=$((SECONDS + 60))
until arrived || [ $SECONDS -ge $deadline ]; do
  kill -0 "$pid" 2>/dev/null || { echo "the Collector ended:" >&2; cat replayed/collector.log >&2; exit 1; }
  sleep 0.2
done
arrived || echo "after 60 s not all has arrived: the Collector drops a line that it cannot read" >&2
kill "$pid"
trap - EXIT
wait "$pid" || { echo "the Collector failed:" >&2; cat replayed/collector.log >&2; exit 1; }

status=0
for signal in "${signals[@]}"; do
  normal "$signal"-*.jsonl > replayed/"$signal".written
  normal replayed/"$signal".jsonl > replayed/"$signal".understood
  if diff -U 8 --label "$signal, written" --label "$signal, understood by the Collector" \
    replayed/"$signal".written replayed/"$signal".understood > replayed/"$signal".diff; then
    echo "$signal: ${wanted[$signal]} records, the same"
  else
    status=1
    head -n 200 replayed/"$signal".diff # The rest is in the file.
  fi
done
exit $status
