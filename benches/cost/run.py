#!/usr/bin/env python3
"""What does instrumentation cost the thread that is instrumented, with Lens and with others?

    benches/cost/run.py [--quick]
    benches/cost/run.py --check

Needs Python 3.11 and valgrind. Without --check it is for a machine that does little else, and takes ten minutes.

Builds the programs of this folder (src/measure.rs tells what they do), each with its own dependencies and no
others, lets each case show that it records what it says, and measures it in two ways:

- By the clock, in rounds: one process per case and round, all cases of a round one after the other, every other
  round in reverse order. A process gives the median of its chunks, and the tables the median of the rounds.
- By callgrind: the instructions and allocations of the calling thread, without those of exporters on theirs. Each
  is the difference between a chunk of N calls and one of 2 N, the median of several.

Writes docs/performance.md. With --quick it only prints, after fewer rounds.

With --check it only counts, since that does not depend on what else the machine does, and only Lens and what its
bounds need, and compares with what docs/performance.md says: where a count differs, or a bound that was reached is
not any more, or a peer has another version, it fails.
"""

import argparse
import itertools
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
TARGET = REPOSITORY / "target" / "cost"
DOCUMENT = REPOSITORY / "docs" / "performance.md"

PROGRAMS = ("lens", "with_tracing", "raw_otel", "with_fastrace", "with_metrics")
# Those that are counted by --check. What the others do changes with their versions alone.
CHECKED = PROGRAMS[:2]
ROUNDS, QUICK_ROUNDS = 7, 2

# Two patterns for one function: of an option for the same pattern as another's, callgrind takes no notice.
CALLGRIND = (
    "--tool=callgrind", "--separate-threads=yes", "--toggle-collect=*::measure::measured", "--dump-after=*::measured",
)  # fmt: skip
ALLOCATES = ("malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign")

# What may lie between two counts of the same program. Most are the same to the instruction. But how long the C
# library's allocator looks for memory depends on when the exporter's thread gave some back: 1.2 % at the most in four
# runs of all cases beside other work. Another C library, on another machine, copies and allocates in other ways: what
# is looked for here is a way that has become longer, not a library that has become newer.
INSTRUCTIONS, INSTRUCTIONS_SHARE = 2, 0.1
# A queue takes a block of memory for every 32 spans, unless the exporter's thread has just given one back: 0.004 in
# the same runs.
ALLOCATIONS = 0.02

# Requests of one call, as src/measure.rs has it.
MANY = 10_000

# In the order of the tables, with what each is called there.
VARIANTS = {
    "bare": "bare",
    "lens_unset": "Lens, nothing set up",
    "lens_group_off": "Lens, its group off",
    "lens": "Lens",
    "lens_call": "Lens, an annotated call",
    "lens_model_call": "Lens, a call to a model",
    "no_subscriber": "tracing, no subscriber",
    "filtered": "tracing, filtered out",
    "noop": "OpenTelemetry, no provider",
    "no_root": "fastrace, no root",
    "otel": "OpenTelemetry",
    "tracing": "tracing-opentelemetry",
    "fastrace": "fastrace",
    "metrics": "metrics",
}


@dataclass
class Case:
    program: str
    name: str
    calls: int
    units: int
    threads: int
    # One for each round, by the clock and of the threads themselves.
    times: list = field(default_factory=list)
    owns: list = field(default_factory=list)
    instructions: float | None = None
    allocations: float | None = None

    @property
    def parts(self):
        """Kind, variant, and attributes if it has any."""
        kind, variant, *attributes = self.name.split(".")
        return kind, variant, attributes[0] if attributes else ""

    @property
    def ns(self):
        return statistics.median(self.times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds; only prints")
    parser.add_argument("--check", action="store_true", help="compares counts with docs/performance.md")
    arguments = parser.parse_args()
    for tool in ("cargo", "valgrind"):
        if shutil.which(tool) is None:
            parser.error(f"needs `{tool}`")
    loads = [os.getloadavg()[0]]
    programs = CHECKED if arguments.check else PROGRAMS
    cases = [case for program in programs for case in build(program)]
    for case in cases:
        run(case, "verify")
    if arguments.check:
        count(cases)
        sys.exit(check(Results(cases), DOCUMENT.read_text()))
    measure(cases, QUICK_ROUNDS if arguments.quick else ROUNDS)
    loads.append(os.getloadavg()[0])
    count(cases)
    text = report(Results(cases), arguments, loads)
    print(text, end="")
    if not arguments.quick:
        DOCUMENT.write_text(text)


# --- Building and measuring.


def build(program):
    """The program's cases."""
    say(f"build {program}")
    features = ["--locked", "--features", program]
    if 'tracing feature "log' in cargo("tree", *features, "--edges", "features"):
        sys.exit(f"{program}: the feature `log` of tracing is on, with which a span that is off costs far more")
    cargo("build", *features, "--quiet", "--release", "--bin", program)
    lines = (line.split() for line in output([binary(program), "list"]).splitlines())
    return [Case(program, name, *map(int, numbers)) for name, *numbers in lines]


def cargo(*arguments):
    kept = {name: value for name, value in os.environ.items() if not is_a_setting(name)}
    environment = kept | {"CARGO_INCREMENTAL": "0", "CARGO_TARGET_DIR": str(TARGET)}
    return output(["cargo", *arguments], cwd=HERE, env=environment)


def is_a_setting(name):
    """Whether a variable would change what is built, or how."""
    return name.startswith(("CARGO_PROFILE_", "CARGO_TARGET_", "RUSTC")) or name in (
        "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS",
    )  # fmt: skip


def binary(program):
    return TARGET / "release" / program


def run(case, mode, wrapper=(), cwd=None):
    # No variable of whoever measures plays a part.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RUST_LOG"))}
    return output([*wrapper, binary(case.program), mode, case.name], env=kept, cwd=cwd)


def measure(cases, rounds):
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for case in cases if number % 2 == 0 else reversed(cases):
            by_clock, own = map(float, run(case, "time").split())
            case.times.append(by_clock)
            case.owns.append(own)


def count(cases):
    counted = [case for case in cases if case.threads == 1]
    say(f"count {len(counted)} cases")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, (instructions, allocations) in zip(counted, pool.map(count_one, counted), strict=True):
            case.instructions, case.allocations = instructions, allocations


def count_one(case):
    """Instructions and allocations of a unit, on the thread that makes the calls."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        run(case, "count", ("valgrind", *CALLGRIND, "--quiet", f"--callgrind-out-file={folder}/out"))
        # The main thread is the first; what comes after the last chunk has no number.
        dumps = sorted(folder.glob("out.*-01"), key=lambda path: int(path.name.split(".")[1].split("-")[0]))
        found = [read_dump(path) for path in dumps]
    if not found or len(found) % 2:
        sys.exit(f"{case.name}: expected pairs of chunks, callgrind wrote {len(found)}")
    pairs = list(zip(found[::2], found[1::2], strict=True))[1:]
    units = case.calls * case.units
    return tuple(
        statistics.median((twice[index] - once[index]) / units for once, twice in pairs) for index in range(2)
    )


def read_dump(path):
    """Instructions and allocations of a chunk. The latter with those up to it, which are the same for each."""
    instructions, calls, names, callee = None, Counter(), {}, None
    for line in path.read_text().splitlines():
        if named := re.match(r"c?fn=\((\d+)\)(?: (.*))?", line):
            # A name stands beside its number the first time.
            names.setdefault(named[1], named[2])
            callee = names[named[1]]
        elif line.startswith("calls="):
            calls[callee] += int(line.removeprefix("calls=").split()[0])
        elif line.startswith("totals:"):
            instructions = int(line.split()[1])
    return instructions, sum(calls[name] for name in ALLOCATES)


# --- What was found.


class Results:
    def __init__(self, cases):
        self.cases = cases
        # Each program has the bare cases.
        self.by_name = {case.name: case for case in reversed(cases)}

    def __getitem__(self, name):
        return self.by_name[name]

    def of_kind(self, kind):
        """The cases of a table, in its order. Of the bare ones, that of Lens's program."""
        order = list(VARIANTS)
        found = [case for case in self.by_name.values() if case.parts[0] == kind]
        return sorted(found, key=lambda case: (order.index(case.parts[1]), case.parts[2]))

    def bare(self, case):
        """The bare function that goes with a case, in the same program; none where no function is called."""
        kind, variant, _ = case.parts
        if kind == "record":
            kind = "off_sync" if case.program == "lens" else None
        if variant == "bare" or kind is None:
            return None
        return next(other for other in self.cases if other.program == case.program and other.name == f"{kind}.bare")

    def instructions_over(self, name):
        return self[name].instructions - self.bare(self[name]).instructions

    def times_over(self, name):
        """Of each round."""
        case = self[name]
        return [time - bare for time, bare in zip(case.times, self.bare(case).times, strict=True)]


@dataclass
class Bound:
    """Something that has to hold of Lens."""

    what: str
    limit: float
    # Whether it depends on the machine.
    is_counted: bool
    # One value, or one of each round.
    values: list
    unit: str = ""

    @property
    def measured(self):
        return statistics.median(self.values)

    @property
    def is_reached(self):
        return self.measured <= self.limit


def counted_bounds(results):
    variants = ("lens_unset", "lens_group_off")
    off = [f"off_sync.{variant}.{a}" for variant in variants for a in ATTRIBUTES]
    most = max(map(results.instructions_over, off))
    yield Bound("off, a function: instructions over bare, at the most", 12, True, [most])
    yield Bound("off, a function: allocations", 0, True, [max(results[name].allocations for name in off)])
    for a, text in ATTRIBUTES.items():
        lens = max(results.instructions_over(f"off_async.{variant}.{a}") for variant in variants)
        share = lens / results.instructions_over(f"off_async.no_subscriber.{a}")
        what = f"off, an `async fn`, {text}: instructions over bare, as a share of tracing's without a subscriber"
        yield Bound(what, 1.0, True, [share])
    for a, text in ATTRIBUTES.items():
        yield Bound(f"on, a tree, {text}: allocations a span", 2, True, [results[f"on_tree.lens.{a}"].allocations])


def timed_bounds(results):
    def share(of, over):
        return [a / b for a, b in zip(results.times_over(of), results.times_over(over), strict=True)]

    limits = (("otel", "a3", 0.55), ("tracing", "a3", 0.15), ("fastrace", "a3", 0.6), ("fastrace", "a0", 1.6))
    for peer, a, limit in limits:
        what = f"on, a tree, {ATTRIBUTES[a]}: time over bare, as a share of {VARIANTS[peer]}'s"
        yield Bound(what, limit, False, share(f"on_tree.lens.{a}", f"on_tree.{peer}.{a}"))
    for a, text in ATTRIBUTES.items():
        what = f"on, an `async fn`, {text}: time over bare, as a share of {VARIANTS['otel']}'s"
        yield Bound(what, 0.7, False, share(f"on_async.lens.{a}", f"on_async.otel.{a}"))
    call, record = results.times_over("record.lens_call"), results["record.otel"].times
    what = "a measurement: time of an annotated call over bare, as a share of a plain `record`'s"
    yield Bound(what, 1.0, False, [a / b for a, b in zip(call, record, strict=True)])
    yield Bound("10,000 requests of one call: time", 2, False, milliseconds(results["requests.lens"]), " ms")


ATTRIBUTES = {"a0": "no attributes", "a3": "3 attributes"}


# --- The document.


def report(results, arguments, loads):
    command = "benches/cost/run.py" + (" --quick" if arguments.quick else "")
    rounds = len(results.cases[0].times)
    paragraphs = [
        "# What instrumentation costs",
        f"`{command}`, {date.today()}. {machine(loads)}. {versions()}.",
        "What a call costs the thread that makes it: *ns* by the clock, the median of"
        f" {rounds} rounds, with the least and the most of them; *instructions* and *allocations* of that thread, as"
        " callgrind counts them. *Over bare* is what it costs more than the same function without instrumentation, in a"
        " program with the same dependencies, of which the one with Lens stands in the tables. All programs are"
        " release builds with cargo's defaults.",
        "The peers do the work they do by default, with one exception each, in their favour: what exports does nothing,"
        " and its queue has room for all. Lens sends what it recorded to a receiver in the same process, by OTLP over"
        " HTTP. Both happen on other threads, between the chunks that are measured as far as possible.",
        bounds_section(results),
        off_section(results),
        on_section(results),
        record_section(results),
        threads_section(results),
    ]
    return "\n\n".join(map(wrapped, "\n\n".join(paragraphs).split("\n\n"))) + "\n"


def wrapped(paragraph):
    return paragraph if paragraph.startswith(("|", "#")) else textwrap.fill(paragraph, 110, break_on_hyphens=False)


def bounds_section(results):
    rows = []
    for bound in (*counted_bounds(results), *timed_bounds(results)):
        values = (f"{value}{bound.unit}" for value in (bound.limit, f"{bound.measured:.2f}"))
        verdict = "reached" if bound.is_reached else "not reached"
        rows.append(row(bound.what, *values, spread(bound.values), verdict))
    return "\n".join([
        "## Bounds\n",
        "What is required of Lens, and what it takes. *Rounds* has the smallest and the largest value of a round.\n",
        "| | at most | measured | rounds | |",
        "|---|---|---|---|---|",
        *rows,
    ])  # fmt: skip


def off_section(results):
    return "\n\n".join([
        "## Off",
        "Attributes are a text, an integer and a float. With Lens the group of the calls is off, or nothing was ever"
        " set up; with tracing there is no subscriber, or one that takes another target; with fastrace nobody began a"
        " trace; with OpenTelemetry nobody set a provider.",
        "### A function of one parameter",
        table(results, "off_sync"),
        "### A function of three parameters",
        "A text, an integer and a float, which are its attributes. They have to be kept somewhere while it is found out"
        " whether the call is recorded.",
        table(results, "off_wide"),
        "### An `async fn` with three awaits",
        "On tokio's runtime for one thread, one call after the other; each takes four polls.",
        table(results, "off_async"),
    ])  # fmt: skip


def on_section(results):
    return "\n\n".join([
        "## On",
        "A span of Lens has three or four attributes more: its group, its step, its outcome, and as a leaf its"
        " bucket. A span of tracing-opentelemetry, with its defaults, has the place in the code, the thread, and how"
        " long it was busy and idle. One of fastrace has texts for attributes, and is no current span to whoever"
        " knows OpenTelemetry.",
        "### A span, in a tree of 20, four deep",
        "Figures are for one span. The tree of Lens is a step's, with its number.",
        table(results, "on_tree"),
        "### An `async fn` with three awaits",
        "Each call is a trace of its own.",
        table(results, "on_async"),
    ])  # fmt: skip


def record_section(results):
    requests = [
        row(VARIANTS[case.parts[1]], f"{statistics.median(times):.2f}", spread(times), *counts(case))
        for case, times in ((case, milliseconds(case)) for case in results.of_kind("requests"))
    ]
    return "\n\n".join([
        "## Metrics",
        "### A measurement",
        "With Lens a call is measured: it reads the clock, finds its outcome, and records a duration with three"
        " attributes; where a model is called, a number of tokens with four and another duration with three besides."
        " The others record a value that they have, with four attributes that are ready: OpenTelemetry into a"
        " histogram, metrics into its exporter for Prometheus, which sorts the values into buckets later.",
        table(results, "record"),
        "### 10,000 requests",
        "One call of Lens's with the tokens of so many requests, and as many plain records: milliseconds for all of"
        " them, counts for one.",
        "\n".join(["| | ms | rounds | instructions | allocations |", "|---|---|---|---|---|", *requests]),
    ])  # fmt: skip


def threads_section(results):
    rows = []
    for case in results.of_kind("threads"):
        alone = results[f"on_tree.{case.parts[1]}.{case.parts[2]}"]
        for one in (alone, case):
            own = number(statistics.median(one.owns))
            rows.append(row(VARIANTS[case.parts[1]], one.threads, number(one.ns), spread(one.times), own))
    return "\n\n".join([
        "## Threads",
        "The tree with three attributes on eight threads at once, and on one, in nanoseconds for one span. *Ns* is"
        " the time from the first thread's beginning to the last one's end, divided by the spans of all; *own* is the"
        " processor time that the threads themselves took for one. If they did not hold each other up, *own* would be"
        " the same for eight as for one, and *ns* as many times smaller as there are processors, less what exporters'"
        f" threads take of those. Here there are {os.cpu_count()}.",
        "\n".join(["| | threads | ns | rounds | own |", "|---|---|---|---|---|", *rows]),
    ])  # fmt: skip


def table(results, kind):
    rows = [
        "| | attributes | ns | rounds | over bare | instructions | over bare | allocations |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in results.of_kind(kind):
        _, variant, attributes = case.parts
        time_over = instructions_over = ""
        if results.bare(case) is not None:
            time_over = number(statistics.median(results.times_over(case.name)))
            instructions_over = number(results.instructions_over(case.name))
        instructions, allocations = counts(case)
        cells = [VARIANTS[variant], attributes.removeprefix("a"), number(case.ns), spread(case.times), time_over]
        rows.append(row(*cells, instructions, instructions_over, allocations))
    return "\n".join(rows)


def counts(case):
    return number(case.instructions), f"{case.allocations:.2f}"


def milliseconds(case):
    """What all requests of a call took, in each round."""
    return [time * MANY / 1e6 for time in case.times]


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def spread(values):
    if len(values) < 2:
        return ""
    digits = 0 if max(values) >= 100 else 2
    return f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def machine(loads):
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    load = "load {:.1f} at the beginning, {:.1f} behind the rounds".format(*loads)
    return f"{os.cpu_count()} processors, {model[1] if model else 'unknown'} ({load})"


def versions():
    """What was measured, with what."""
    library = ["lens-macros", "lens-runtime", "Cargo.toml"]
    changed = output(["git", "status", "--porcelain", "--", *library], cwd=REPOSITORY)
    commit = output(["git", "log", "-1", "--format=%h", "--", *library], cwd=REPOSITORY).strip()
    rustc = output(["rustc", "--version"], cwd=REPOSITORY).split(" (")[0]
    lens = f"lens-runtime at {commit}" + (" with changes" if changed else "")
    return ", ".join([rustc, output(["valgrind", "--version"]).strip(), lens, *peers()])


def peers():
    """The peers that are locked, with their versions."""
    lock = (HERE / "Cargo.lock").read_text().split("[[package]]")
    names = (
        "opentelemetry_sdk", "tracing", "tracing-subscriber", "tracing-opentelemetry", "fastrace", "metrics",
        "metrics-exporter-prometheus", "tokio",
    )  # fmt: skip
    for name in names:
        entry = next(entry for entry in lock if f'\nname = "{name}"\n' in entry)
        yield f"{name} " + entry.split('\nversion = "')[1].split('"')[0]


# --- The check.


def check(results, document):
    """What to end with: what was counted is compared with what the document says."""
    said = read_tables(document)
    words = re.split(r"[,.]? ", " ".join(document.split()))
    pairs = list(itertools.pairwise(words))
    complaints = [
        f"{peer} is not what docs/performance.md measured" for peer in peers() if tuple(peer.split()) not in pairs
    ]
    for case in results.cases:
        if case.threads > 1 or results[case.name] is not case:
            continue
        kind, variant, attributes = case.parts
        key = (HEADINGS[kind], VARIANTS[variant], attributes.removeprefix("a"))
        if key not in said:
            complaints.append(f"{case.name} is not in docs/performance.md")
            continue
        then = said[key]
        instructions, allocations = float(then["instructions"].replace(",", "")), float(then["allocations"])
        if abs(case.instructions - instructions) > max(INSTRUCTIONS, INSTRUCTIONS_SHARE * instructions):
            then_and_now = f"{number(instructions)} in docs/performance.md, now {number(case.instructions)}"
            complaints.append(f"{case.name}: instructions {then_and_now}")
        if abs(case.allocations - allocations) > ALLOCATIONS:
            then_and_now = f"{allocations:.2f} in docs/performance.md, now {case.allocations:.2f}"
            complaints.append(f"{case.name}: allocations {then_and_now}")
    verdicts = {cells[0]: cells[-1] for cells in map(split, document.splitlines()) if cells}
    for bound in counted_bounds(results):
        was = verdicts.get(bound.what)
        if was is None:
            complaints.append(f"{bound.what}: not in docs/performance.md")
        elif was == "reached" and not bound.is_reached:
            complaints.append(f"{bound.what}: at most {bound.limit} in docs/performance.md, now {bound.measured:.2f}")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        print("if that is as it should be: benches/cost/run.py writes docs/performance.md anew", file=sys.stderr)
    return 1 if complaints else 0


HEADINGS = {
    "off_sync": "Off / A function of one parameter",
    "off_wide": "Off / A function of three parameters",
    "off_async": "Off / An `async fn` with three awaits",
    "on_tree": "On / A span, in a tree of 20, four deep",
    "on_async": "On / An `async fn` with three awaits",
    "record": "Metrics / A measurement",
    "requests": "Metrics / 10,000 requests",
}


def read_tables(document):
    """The rows of tables with counts, by the headings they stand under, variant and attributes."""
    found, section, heading, columns = {}, "", "", None
    for line in document.splitlines():
        if line.startswith("## "):
            section, columns = line.removeprefix("## "), None
        elif line.startswith("### "):
            heading, columns = f"{section} / {line.removeprefix('### ')}", None
        elif cells := split(line):
            if columns is None:
                columns = cells
            elif "instructions" in columns and set(cells[0]) != {"-"}:
                # Of two columns with one name, the first.
                values = dict(reversed(list(zip(columns, cells, strict=True))))
                found[heading, cells[0], values.get("attributes", "")] = values
    return found


def split(line):
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


def say(text):
    print(text, file=sys.stderr, flush=True)


def output(command, **settings):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **settings)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
