#!/usr/bin/env python3
"""Does a Collector receive whole subtrees, if a program keeps a share of them?

    thinned.py COLLECTOR_BINARY DRIVER_BINARY

The driver has 300 prompts in each of three steps, of which it keeps a tenth, in the first and the third step. It runs
twice with one run id, and once with another, and sends by gRPC. Exit 1, with what is wrong, unless

- every span that was received has its parent, or is a step;
- every prompt that was kept has its answer and the reward of that, and says how likely it was;
- both runs with one id kept the same prompts, about a tenth, and the other one others.
"""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import peer

PROTOCOL = "grpc"
PROMPTS, STEPS = 300, (1, 3)
CONFIG = "telemetry:\n  enabled: true\n  exporter: otlp\n  span_groups: all,per_prompt@0.1\n  steps: 1,3\n"
# What lies beneath what.
ABOVE = {
    "rl.test.step": None,
    "rl.test.prompt": "rl.test.step",
    "rl.test.generate": "rl.test.prompt",
    "rl.test.reward": "rl.test.generate",
}
# 2^56 * 0.9, to the nearest.
THRESHOLD = 0xE6_6666_6666_6666
# A tenth of 600, give or take six standard deviations: it is the same tenth each time.
PLAUSIBLE = range(60 - 44, 60 + 45)


def received(folder):
    """The spans, as the Collector wrote them."""
    spans = []
    for line in (folder / "traces-received.jsonl").read_text().splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                spans += scope["spans"]
    return spans


def number(span, key):
    values = [pair["value"] for pair in span.get("attributes", ()) if pair["key"] == key]
    return int(values[0]["intValue"]) if len(values) == 1 else None


def shares(span):
    """The sub-keys of OpenTelemetry's entry in the tracestate."""
    entries = [entry[len("ot=") :] for entry in span.get("traceState", "").split(",") if entry.startswith("ot=")]
    return dict(part.split(":", 1) for part in entries[0].split(";")) if len(entries) == 1 else {}


def check(spans):
    """The prompts that were kept, each as step and number, and what is wrong."""
    wrong = []
    by_id = {span["spanId"]: span for span in spans}
    if len(by_id) != len(spans):
        wrong.append(f"{len(spans) - len(by_id)} spans were received twice")
    kept, beneath = set(), {name: [] for name in ABOVE}
    for span in spans:
        name, step = span["name"], number(span, "rl.iteration")
        parent = by_id.get(span.get("parentSpanId", ""))
        above = parent and parent["name"]
        if name not in ABOVE or above != ABOVE[name] or (above is None) != (not span.get("parentSpanId")):
            wrong.append(f"{name} beneath {above}, of the parent {span.get('parentSpanId')!r}")
            continue
        if parent and (parent["traceId"], number(parent, "rl.iteration")) != (span["traceId"], step):
            wrong.append(f"{name} of another trace or step than its parent")
        if step not in STEPS:
            wrong.append(f"{name} of step {step}")
        beneath[name].append((step, number(span, "prompt")))
        if name == "rl.test.prompt":
            kept.add((step, number(span, "prompt")))
            said = shares(span)
            if int(said.get("th", "0").ljust(14, "0"), 16) != THRESHOLD or int(said.get("rv", "0"), 16) < THRESHOLD:
                wrong.append(f"a prompt with the tracestate {span.get('traceState')!r}")
    if sorted(beneath["rl.test.step"]) != [(step, None) for step in STEPS]:
        wrong.append(f"steps {beneath['rl.test.step']}")
    for name in ("rl.test.prompt", "rl.test.generate", "rl.test.reward"):
        if sorted(beneath[name]) != sorted(kept):
            wrong.append(f"{len(beneath[name])} {name} of {len(kept)} prompts")
    if len(kept) not in PLAUSIBLE:
        wrong.append(f"{len(kept)} prompts of {PROMPTS * len(STEPS)} were kept")
    return kept, wrong


def can_fail(spans):
    """Whether the check sees what is missing, and what should not be there."""

    def without(name):
        first = next(index for index, span in enumerate(spans) if span["name"] == name)
        return spans[:first] + spans[first + 1 :]

    untold = copy.deepcopy(spans)
    next(span for span in untold if span["name"] == "rl.test.prompt").pop("traceState")
    damaged = [without(name) for name in ABOVE] + [untold, spans + spans[:1]]
    return all(check(damage)[1] for damage in damaged)


def run(collector, driver, folder, run_id):
    folder.mkdir()
    (folder / "run.yaml").write_text(CONFIG)
    with peer.collector(collector, folder) as ports:
        environment = peer.environment(PROTOCOL, ports) | {"LENS_RUN_ID": run_id}
        command = [driver, "prompts", "run.yaml"]
        ended = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, timeout=peer.COMMAND_SECONDS
        )
    if ended.returncode != 0:
        sys.exit(f"{driver} ended with {ended.returncode}")
    spans = received(folder)
    kept, wrong = check(spans)
    if wrong:
        sys.exit(f"run {run_id}: " + "; ".join(wrong[:20]))
    return spans, kept


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    collector, driver = (Path(argument).resolve() for argument in sys.argv[1:])
    peer.unwind_when_ended()
    with tempfile.TemporaryDirectory() as folder:
        spans, first = run(collector, driver, Path(folder, "first"), "a")
        _, again = run(collector, driver, Path(folder, "again"), "a")
        _, other = run(collector, driver, Path(folder, "other"), "b")
    if not can_fail(spans):
        sys.exit("the check sees no damage")
    if first != again:
        sys.exit(f"two processes of one run kept different prompts: {sorted(first ^ again)}")
    if first == other:
        sys.exit("two runs kept the same prompts")
    print(f"{len(first)} of {PROMPTS * len(STEPS)} prompts with all that is beneath them, the same in each process")


if __name__ == "__main__":
    main()
