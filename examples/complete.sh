#!/usr/bin/env bash
# Is a run of the example trainer, of a hundred steps, complete in OTLP-JSON files?
#
#   complete.sh FOLDER REWARDS
#
# FOLDER has traces-*.jsonl, metrics-*.jsonl and logs-*.jsonl, whoever wrote them: the run itself, or a Collector that
# received it. REWARDS is what the trainer wrote by itself (--rewards). Needs jq.
set -euo pipefail
[ $# = 2 ] || { echo "usage: $0 FOLDER REWARDS" >&2; exit 2; }
folder=$1 rewards=$2

fail() { echo "FAILED: $*" >&2; exit 1; }
spans() { jq -c '.resourceSpans[].scopeSpans[].spans[]' "$folder"/traces-*.jsonl; }
attribute='def attribute($key): (.attributes // [] | map(select(.key == $key)) | first | .value // {}) | to_entries | first | .value;'

echo "== $folder holds every span of every step under its parent"
spans | jq -es "$attribute"'
  . as $spans | INDEX(.spanId) as $by_id
  | def parent: $by_id[.parentSpanId // ""].name;
    def of(name): map(select(.name == name));
    (of("rl.grpo.step") | length == 100 and all(parent == "rl.grpo.job"))
    and (of("rl.grpo.step") | [.[] | attribute("rl.iteration") | tonumber] | sort == [range(1; 101)])
    and all("data_processing", "generation", "reward_calculation", "policy_and_reference_logprobs",
        "advantage_calculation", "policy_training"; . as $phase
        | $spans | of("rl.grpo." + $phase) | length == 100 and all(parent == "rl.grpo.step"))
    and (of("rl.engine.generate") | map(select(parent == "rl.grpo.generation")) | length == 100)
    and (of("rl.grpo.evaluate") | length == 6 and ([.[] | parent] | unique == ["rl.grpo.job", "rl.grpo.step"]))
    and (of("rl.grpo.checkpointing") | length == 2 and all(parent == "rl.grpo.step"))
    and (of("rl.setup.data") | all(parent == "rl.startup"))
    and all(.[]; (.parentSpanId // "") == "" or parent != null)
' > /dev/null || fail "the tree of spans is not complete"

echo "== token sums are the trainer's own"
counted=$(spans | jq -s "$attribute"'
  (INDEX(.spanId) | map_values(.name)) as $names
  | map(select(.name == "rl.engine.generate" and $names[.parentSpanId] == "rl.grpo.generation"))
  | [(map(attribute("gen_ai.usage.input_tokens") | tonumber) | add),
     (map(attribute("gen_ai.usage.output_tokens") | tonumber) | add)]' -c)
own=$(jq -s '[(map(.prompt_tokens) | add), (map(.response_tokens) | add)]' -c "$rewards")
[ "$counted" = "$own" ] || fail "spans count $counted tokens, the trainer $own"

echo "== rewards by step are kept exactly"
# Times 1, because jq keeps the text of a number until it computes, and a Collector writes 1 for 1.0.
logged=$(jq -r "$attribute"'.resourceLogs[].scopeLogs[].logRecords[]
  | select(.eventName == "rl.step.metrics") | [(attribute("rl.iteration") | tonumber), attribute("rl.reward.mean") * 1] | @json' "$folder"/logs-*.jsonl | sort -V)
[ "$logged" = "$(jq -r '[.step, .reward * 1] | @json' "$rewards" | sort -V)" ] || fail "the events lost a reward"

echo "== metrics count what spans and rewards count"
# Metrics are cumulative and come again and again: the last point of a series says all.
spans | jq -es --slurpfile metrics <(jq -c '.resourceMetrics[].scopeMetrics[].metrics[]' "$folder"/metrics-*.jsonl) \
  --slurpfile rewards "$rewards" "$attribute"'
  . as $spans
  | def last_points(name): [$metrics[] | select(.name == name) | (.histogram // .gauge).dataPoints[]]
      | group_by([.attributes // [] | sort_by(.key)[] | {key, value}]) | map(max_by(.timeUnixNano | tonumber));
    def total(points; value): reduce points[] as $point (0; . + ($point | value));
  ($spans | group_by(.name) | all(.[0].name as $phase | length
    == total(last_points("rl.phase.duration") | map(select(attribute("rl.phase") == $phase)); .count | tonumber)))
  and all("input", "output"; . as $kind
    | total($spans; attribute("gen_ai.usage." + $kind + "_tokens") // 0 | tonumber)
    == total(last_points("gen_ai.client.token.usage") | map(select(attribute("gen_ai.token.type") == $kind)); .sum))
  and (last_points("rl.reward.mean") | length == 1 and .[0].asDouble == $rewards[-1].reward)
' > /dev/null || fail "the metrics count otherwise"
