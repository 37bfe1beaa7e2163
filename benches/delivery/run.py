#!/usr/bin/env python3
"""What does it take to bring spans to a receiver, by Lens and by the OpenTelemetry SDK's batch processor?

    benches/delivery/run.py COLLECTOR_BINARY [--quick]

Measured by hand, not by the gate: it takes a quarter of an hour, and the numbers want a machine that does
little else. Needs Python 3.11, and the Collector that `.ci/run` builds from tests/collector.

Builds the two programs of this folder (src/measure.rs tells what they do) and runs them in turns, each time in
a process of its own. What it took is the process's own status as it stands in /proc at its end; what arrived
is counted by the ids of the spans in what the receiver got. A receiver is the Collector, one of receiver.py
that misbehaves, a port at which nobody listens, or a name that there is not.

Writes results.md beside this file. With --quick it only prints, after fewer spans and one round.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

# No compiled Python beside the source.
sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "peers"))
import peer  # noqa: E402

TARGET = REPOSITORY / "target" / "delivery"
# A queue of the SDK's that holds a step with a span for each of 100,000 rollouts.
LARGE = {"OTEL_BSP_MAX_QUEUE_SIZE": "131072"}
# Program, its name in the tables, and what is set for it.
LENS, SDK, SDK_LARGE = ("lens", "Lens", {}), ("sdk", "SDK", {}), ("sdk", "SDK, queue 131,072", LARGE)

PROTOCOLS = ("grpc", "http/protobuf")
BURSTS = (10_000, 100_000)
FLOOD = 1_000_000
ROUNDS = 5
CALLS = 20_000
# Of the shutdown after a burst: long enough for everything.
PATIENT_MS = 120_000
DEADLINES_MS = (1_000, 5_000)
# The most that Lens may take, as a share of what the SDK takes with a queue for all.
MEMORY_BOUND = 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collector", type=Path, help="the binary")
    parser.add_argument("--quick", action="store_true", help="fewer spans, one round")
    arguments = parser.parse_args()
    peer.unwind_when_ended()
    for program in ("lens", "sdk"):
        build(program)
    rounds, bursts, flood = (1, BURSTS[:1], 200_000) if arguments.quick else (ROUNDS, BURSTS, FLOOD)
    text = "\n".join(
        head(arguments)
        + burst_tables(arguments.collector, bursts, rounds)
        + flood_table(arguments.collector, flood)
        + fault_tables()
    )
    print(text)
    if not arguments.quick:
        (HERE / "results.md").write_text(text + "\n")


def build(program):
    subprocess.run(
        ["cargo", "build", "--locked", "--quiet", "--release", "--features", program, "--bin", program],
        cwd=HERE,
        env=os.environ | {"CARGO_INCREMENTAL": "0", "CARGO_TARGET_DIR": str(TARGET)},
        check=True,
    )


def run(which, protocol, endpoint, *arguments):
    """What a program printed of itself."""
    program, name, variables = which
    print(name, protocol, *arguments, file=sys.stderr)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    own = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    output = subprocess.run(
        [TARGET / "release" / program, *map(str, arguments)],
        env=kept | own | variables,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return json.loads(output.stdout)


def to_collector(binary, which, protocol, spans):
    """A burst, with what arrived of it."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        with peer.collector(binary, folder) as ports:
            endpoint = f"http://{peer.HOST}:{ports[protocol]}"
            result = run(which, protocol, endpoint, "burst", spans, PATIENT_MS)
        written = folder / "traces-received.jsonl"
        ids = set()
        if written.exists():
            with open(written) as lines:
                # A span's own id; its parent's is called otherwise.
                ids = {found for line in lines for found in re.findall(r'"spanId":"(\w+)"', line)}
    return result | {"arrived": len(ids)}


def burst_tables(binary, bursts, rounds):
    lines = [
        "## Bursts, to a Collector",
        "",
        f"Flat out from one thread, then a shutdown. Medians of {rounds} rounds, of *peak* with all rounds in",
        "brackets. *Lost* is made less arrived, *said* what the shutdown answered. Memory is in MiB: the most",
        "that the process held, the same over what it held before telemetry began, and over what it held",
        "before the first span (where the SDK has taken its queue already).",
        "",
        "| protocol | spans | | arrived | lost | said | making, ms | shutdown, ms | peak | over none | over idle |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    bounds = []
    for protocol in PROTOCOLS:
        for spans in bursts:
            results = {which[1]: [] for which in (LENS, SDK, SDK_LARGE)}
            for _ in range(rounds):
                for which in (LENS, SDK, SDK_LARGE):
                    results[which[1]].append(to_collector(binary, which, protocol, spans))
            lines += [burst_row(protocol, spans, name, found) for name, found in results.items()]
            bounds.append(bound_row(protocol, spans, results))
    return lines + [
        "",
        f"Required of 100,000: nothing lost, and a peak of {MEMORY_BOUND} of that of the SDK with a queue for all. *Over idle*",
        "says little of the SDK, which takes its queue before the first span and keeps it.",
        "",
        "| protocol | spans | lost by Lens, at the most | share of peak | over none | over idle | |",
        "|---|---|---|---|---|---|---|",
        *bounds,
        "",
    ]


def burst_row(protocol, spans, name, found):
    middle = {key: statistics.median(result.get(key, 0) for result in found) for key in found[0]}
    peaks = " ".join(f"{result['memory_peak'] / 1024:.1f}" for result in found)
    return row(
        protocol, f"{spans:,}", name, f"{middle['arrived']:,.0f}", f"{middle['made'] - middle['arrived']:,.0f}",
        "ok" if all(result["said_ok"] for result in found) else "not all arrived",
        f"{middle['work'] / 1e6:.0f}", f"{middle['shutdown'] / 1e6:.0f}",
        f"{middle['memory_peak'] / 1024:.1f} ({peaks})",
        f"{taken(found, 'memory_bare'):.1f}", f"{taken(found, 'memory_idle'):.1f}",
    )  # fmt: skip


def taken(found, over):
    """The median of the peak over something, in MiB."""
    return statistics.median(result["memory_peak"] - (result[over] if over else 0) for result in found) / 1024


def bound_row(protocol, spans, results):
    lens, sdk = results[LENS[1]], results[SDK_LARGE[1]]
    lost = max(result["made"] - result["arrived"] for result in lens)
    shares = [taken(lens, over) / taken(sdk, over) for over in (None, "memory_bare", "memory_idle")]
    verdict = "reached" if lost == 0 and shares[0] <= MEMORY_BOUND else "not reached"
    return row(protocol, f"{spans:,}", lost, *(f"{share:.2f}" for share in shares), verdict)


def flood_table(binary, spans):
    lines = [
        f"## {spans:,} spans, more than the queue holds",
        "",
        "Lens with its default `queue_mib` of 128, of which spans get 96. What is lost is counted to the span if",
        "*exported* is what arrived, and the other columns add up to what was made.",
        "",
        "| protocol | made | exported | arrived | refused | failed | in doubt | left | counts | peak, MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for protocol in PROTOCOLS:
        result = to_collector(binary, LENS, protocol, spans)
        names = ("made", "exported", "arrived", "refused", "failed", "in_doubt", "left")
        counts = "exact" if add_up(result, result["arrived"], spans) else "wrong"
        peak = f"{result['memory_peak'] / 1024:.0f}"
        lines.append(row(protocol, *(f"{result[name]:,}" for name in names), counts, peak))
    return [*lines, ""]


def add_up(result, accepted, made):
    """Whether counts of Lens's say what happened. A receiver may have what is in doubt."""
    became = sum(result[name] for name in ("exported", "rejected", "failed", "refused", "in_doubt", "left"))
    is_exact = result["made"] == made == became
    return is_exact and result["exported"] <= accepted <= result["exported"] + result["in_doubt"]


FAULTS = {
    "refuses connections": (PROTOCOLS, None),
    "black hole": (PROTOCOLS, "hole"),
    "name that there is not": (PROTOCOLS, None),
    "503 for ever": (PROTOCOLS[1:], "unavailable"),
    "slow by 2 s": (PROTOCOLS[1:], "slow"),
    "dies in mid-batch": (PROTOCOLS[1:], "dies"),
    "rejects 3 of each request": (PROTOCOLS[1:], "rejects"),
}


@contextlib.contextmanager
def faulty(fault, protocol):
    """The endpoint of a receiver, and afterwards how many spans it got and accepted, in a list."""
    counts = []
    if fault == "name that there is not":
        yield "http://nowhere.invalid:4318", counts
        counts += [0, 0]
    elif fault == "refuses connections" or (fault == "black hole" and protocol == "grpc"):
        with peer.peer("nobody" if fault == "refuses connections" else "deaf", None, None) as ports:
            yield f"http://{peer.HOST}:{ports[protocol]}", counts
        counts += [0, 0]
    else:
        command = [sys.executable, HERE / "receiver.py", FAULTS[fault][1]]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as server:
            try:
                yield f"http://{peer.HOST}:{int(server.stdout.readline())}", counts
                counts += map(int, server.communicate()[0].split())
            finally:
                server.kill()


def fault_tables():
    lines = [
        "## Receivers that fail",
        "",
        f"{CALLS:,} calls of one annotated function over two seconds, then a shutdown. How long a call took, in",
        "microseconds: by the clock, which sees what the machine takes from a thread, and of the thread's own",
        "processor time; 99.99 % of the calls, and the longest. The shutdown is in ms, for a deadline of 1 s and",
        "of 5 s. *Counts* are exact if they add up to what was made and say what the receiver took; the SDK's",
        "shutdown answers whether all is well, and no more.",
        "",
        "| receiver | protocol | | clock 99.99 % | longest | own 99.99 % | longest | shutdown 1 s | 5 s | lost, of it | counts |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    off = run(LENS, "grpc", "", "off", CALLS)
    lines.append(row("telemetry off", "", "", *calls([off]), "", "", "", ""))
    for fault, (protocols, _) in FAULTS.items():
        for protocol in protocols:
            for which in (LENS, SDK):
                lines.append(fault_row(fault, protocol, which))
    return lines


def fault_row(fault, protocol, which):
    found, verdicts = [], []
    for deadline in DEADLINES_MS:
        with faulty(fault, protocol) as (endpoint, counts):
            result = run(which, protocol, endpoint, "pauses", CALLS, deadline)
        found.append(result)
        if which is LENS:
            verdicts.append("exact" if add_up(result, counts[1], CALLS) else f"wrong: {result} {counts}")
        else:
            verdicts.append("said ok" if result["said_ok"] else "said failed")
    names = ("rejected", "failed", "refused", "in_doubt", "left")
    fates = ", ".join(f"{found[1][name]:,} {name.replace('_', ' ')}" for name in names if found[1].get(name))
    times = (f"{result['shutdown'] / 1e6:.0f}" for result in found)
    return row(fault, protocol, which[1], *calls(found), *times, fates, ", ".join(dict.fromkeys(verdicts)))


def calls(found):
    """The times of calls: the longer ones of both runs."""
    return (f"{max(r[name] for r in found) / 1e3:.0f}" for name in ("clock_9999", "clock_max", "own_9999", "own_max"))


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def head(arguments):
    lock = (HERE / "Cargo.lock").read_text().split("[[package]]")
    found = []
    for name in ("lens-runtime", "opentelemetry_sdk", "opentelemetry-otlp", "tonic", "reqwest"):
        entry = next(entry for entry in lock if f'\nname = "{name}"\n' in entry)
        found.append(f"{name} " + entry.split('\nversion = "')[1].split('"')[0])
    library = ["lens-macros", "lens-runtime", "Cargo.toml"]
    changed = output(["git", "status", "--porcelain", "--", *library])
    found[0] += " at " + output(["git", "log", "-1", "--format=%h", "--", *library]) + (" with changes" if changed else "")
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    go = (REPOSITORY / "tests" / "collector" / "go.mod").read_text()
    collector = re.search(r"go\.opentelemetry\.io/collector/exporter/otlphttpexporter (v\S+)", go)
    command = "benches/delivery/run.py COLLECTOR" + (" --quick" if arguments.quick else "")
    return [
        "# What it takes to bring spans to a receiver",
        "",
        f"`{command}`, {date.today()}. {output(['rustc', '--version']).split(' (')[0]}, {', '.join(found)}; Collector"
        f" {collector[1] if collector else ''}; {os.cpu_count()} processors, {model[1] if model else 'unknown'}"
        f" (load {os.getloadavg()[0]:.1f} at the beginning).",
        "",
        "Both programs make the same steps of 20 spans with 3 attributes each; Lens adds its own attributes to",
        "them. The SDK's program has its batch processor and `opentelemetry-otlp` with their defaults.",
        "",
    ]


def output(command):
    return subprocess.run(command, cwd=REPOSITORY, check=True, text=True, capture_output=True).stdout.strip()


if __name__ == "__main__":
    main()
