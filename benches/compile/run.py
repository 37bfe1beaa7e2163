#!/usr/bin/env python3
"""What does annotating cost the compiler and the binary, compared with others that annotate?

    benches/compile/run.py [--quick] [--only KIND PROFILE]

Measured by hand, not by the gate: it takes a quarter of an hour, and the numbers want a machine that does
little else. Run it with `nice`. Needs Python 3.11 and binutils.

Makes crates below target/compile (see generate.py) that differ in nothing but the attribute on their
functions, builds everything once, so that no dependency is built any more, and then each crate again,
in turns: one after the other, three rounds. What counts is the processor time of the whole `cargo build`,
user and system, with the linker, of which the median of the rounds is taken; it depends less than the clock
on what else the machine does. The size is that of the binary's `.text`, and its functions are counted.

The required bounds are on what Lens adds to the bare crate, as a share of what `tracing::instrument` adds.
Writes results.md beside this file. With --only (one row of the bounds, say `--only sync release`) or --quick it
only prints. --quick takes few functions and one round, to see whether all of this works: with few functions,
what is linked of Lens once is most of what it adds.
"""

import argparse
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
from datetime import date
from operator import itemgetter
from pathlib import Path

# No compiled Python beside the source.
sys.dont_write_bytecode = True
import generate  # noqa: E402

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
FOLDER = REPOSITORY / "target" / "compile"

PROFILES = ("release", "dev")
COUNTS = {"sync": 1000, "async": 300}
QUICK_COUNTS = {"sync": 100, "async": 50}
ROUNDS = 3

# The most that Lens may add to the bare crate, as a share of what tracing adds.
TIME_BOUNDS = {
    ("sync", "release"): 0.25,
    ("sync", "dev"): 0.2,
    ("async", "release"): 0.7,
    ("async", "dev"): 0.5,
}
SIZE_BOUND = 0.4
# What is put into shares: of what the second adds, the first adds so much.
SHARES = ("lens", "tracing")


def main():
    arguments = parse()
    counts = QUICK_COUNTS if arguments.quick else COUNTS
    rows = [tuple(arguments.only)] if arguments.only else list(TIME_BOUNDS)
    generate.write(FOLDER, REPOSITORY, counts)
    answers = warm(rows)
    times = measure(rows, 1 if arguments.quick else ROUNDS)
    sizes = {
        (package, profile): size(binary(package, profile)) for kind, profile in rows for package in programs(kind)
    }
    text = report(arguments, counts, rows, times, sizes)
    print(text)
    for kind, answer in answers.items():
        print(f"all {kind} programs answered {answer}")
    if not arguments.quick and not arguments.only:
        (HERE / "results.md").write_text(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few functions, one round")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "PROFILE"), help="one row of the bounds")
    arguments = parser.parse_args()
    if arguments.only and tuple(arguments.only) not in TIME_BOUNDS:
        parser.error("--only takes sync or async, and release or dev")
    for tool in ("cargo", "nm", "size"):
        if shutil.which(tool) is None:
            parser.error(f"needs `{tool}`")
    return arguments


def programs(kind):
    return [generate.package(*which) for which in generate.packages() if which[0] == kind]


def timed(kind):
    """The programs whose compile time counts."""
    ones = [generate.package(kind, variant, True) for variant in generate.VARIANTS if variant.name in SHARES]
    return [generate.package(kind, variant) for variant in generate.VARIANTS] + ones


def warm(rows):
    """Builds every program, with its dependencies, and runs it: all of a kind must do the same."""
    answers = {}
    for kind, profile in rows:
        for package in programs(kind):
            print(f"build {package}, {profile}", file=sys.stderr)
            build(package, profile, [])
            answer = output([binary(package, profile)])
            if answers.setdefault(kind, answer) != answer:
                sys.exit(f"{package} answers {answer}, others {answers[kind]}")
    return answers


def measure(rows, rounds):
    """Processor seconds of each build, by program and profile."""
    times = {(package, profile): [] for kind, profile in rows for package in timed(kind)}
    for number in range(rounds):
        for (package, profile), seconds in times.items():
            os.utime(FOLDER / package / "src" / "main.rs")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            build(package, profile, ["--offline"])
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            print(f"round {number + 1}: {package}, {profile}: {seconds[-1]:.2f} s", file=sys.stderr)
    return times


def build(package, profile, more):
    kept = {name: value for name, value in os.environ.items() if not is_a_setting(name)}
    subprocess.run(
        ["cargo", "build", "--quiet", "--profile", profile, "--package", package]
        + ["--target-dir", FOLDER / "target", *more],
        cwd=FOLDER,
        env=kept | {"CARGO_INCREMENTAL": "0"},
        check=True,
    )


def is_a_setting(name):
    """Whether a variable would change what is built, or how."""
    return name.startswith(("CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_", "RUSTC")) or name in (
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
    )


def binary(package, profile):
    return FOLDER / "target" / {"dev": "debug"}.get(profile, profile) / package


def size(program):
    """The bytes of `.text`, and the number of functions."""
    sections = [line.split() for line in output(["size", "-A", program]).splitlines()]
    symbols = [line.split() for line in output(["nm", "--defined-only", program]).splitlines()]
    text = next(int(section[1]) for section in sections if section and section[0] == ".text")
    return text, sum(symbol[1] in "tTwW" for symbol in symbols if len(symbol) > 2)


def report(arguments, counts, rows, times, sizes):
    command = "benches/compile/run.py" + (" --quick" if arguments.quick else "")
    command += f" --only {shlex.join(arguments.only)}" if arguments.only else ""
    lines = [
        "# What annotating costs the compiler",
        "",
        f"`{command}`, {date.today()}. {versions()}.",
        "",
        "Processor seconds of one `cargo build` of the crate alone, the median of the rounds, which are in",
        "brackets; `.text` of the binary in KiB; the functions in it. *One* is the same crate with a single",
        "annotation: its `.text` over bare is what is linked of the dependency.",
        "",
        "| functions | profile | variant | seconds | (rounds) | over bare | `.text` | over bare | functions | one: `.text` |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, profile in rows:
        for variant in generate.VARIANTS:
            lines.append(variant_row(kind, profile, variant, counts, times, sizes))
    lines += [
        "",
        "What Lens adds over bare, as a share of what tracing adds. *Rounds* has the smallest and the largest",
        "that any single round gave. *Further annotations* leaves out what the first one costs, of both.",
        "",
        "| functions | profile | what | bound | measured | rounds | further annotations | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [time_bound(*row, counts, times) for row in rows]
    lines += [size_bound(*row, counts, sizes) for row in rows]
    return "\n".join(lines) + "\n"


def variant_row(kind, profile, variant, counts, times, sizes):
    package, one = generate.package(kind, variant), generate.package(kind, variant, True)
    bare = generate.package(kind, generate.BARE)
    seconds = statistics.median(times[package, profile])
    text, functions = sizes[package, profile]
    cells = [f"{counts[kind]} {kind}", profile, variant.name, f"{seconds:.2f}"]
    cells += ["(" + " ".join(f"{second:.2f}" for second in times[package, profile]) + ")"]
    if variant is generate.BARE:
        cells += ["", f"{text / 1024:.0f}", "", str(functions), ""]
    else:
        cells += [f"{seconds - statistics.median(times[bare, profile]):.2f}"]
        cells += [f"{text / 1024:.0f}", f"{(text - sizes[bare, profile][0]) / 1024:.0f}", str(functions)]
        cells += [f"{sizes[one, profile][0] / 1024:.0f}"]
    return line(cells)


def time_bound(kind, profile, counts, times):
    def of(choose):
        return share(kind, lambda package: choose(times[package, profile]), "bare")

    rounds = [of(itemgetter(number)) for number in range(len(next(iter(times.values()))))]
    return bound_row(
        [f"{counts[kind]} {kind}", profile, "processor time"],
        TIME_BOUNDS[kind, profile],
        of(statistics.median),
        f"{min(rounds):.2f} to {max(rounds):.2f}",
        f"{share(kind, lambda package: statistics.median(times[package, profile]), 'one'):.2f}",
    )


def size_bound(kind, profile, counts, sizes):
    def of(less):
        return share(kind, lambda package: sizes[package, profile][0], less)

    return bound_row([f"{counts[kind]} {kind}", profile, "`.text`"], SIZE_BOUND, of("bare"), "", f"{of('one'):.2f}")


def share(kind, value, less):
    """What Lens adds as a share of what tracing adds, over the bare crate or over one annotation."""

    def added(name):
        variant = next(variant for variant in generate.VARIANTS if variant.name == name)
        over = generate.package(kind, generate.BARE) if less == "bare" else generate.package(kind, variant, True)
        return value(generate.package(kind, variant)) - value(over)

    lens, tracing = SHARES
    return added(lens) / added(tracing)


def bound_row(cells, bound, measured, rounds, further):
    verdict = "reached" if measured <= bound else f"not reached: {measured:.2f}"
    return line([*cells, f"{bound}", f"{measured:.2f}", rounds, further, verdict])


def line(cells):
    return "| " + " | ".join(cells) + " |"


def versions():
    """What was measured, with what."""
    lock = (FOLDER / "Cargo.lock").read_text().split("[[package]]")
    found = []
    for name in ("lens-runtime", "tracing", "tracing-attributes", "fastrace", "fastrace-macro"):
        entry = next(entry for entry in lock if f'\nname = "{name}"\n' in entry)
        found.append(f"{name} " + entry.split('\nversion = "')[1].split('"')[0])
    library = ["lens-macros", "lens-runtime", "Cargo.toml", "Cargo.lock"]
    commit = output(["git", "log", "-1", "--format=%h", "--", *library])
    changed = output(["git", "status", "--porcelain", "--", *library])
    found[0] += f" at {commit}" + (" with changes" if changed else "")
    rustc = output(["rustc", "--version"]).split(" (")[0]
    return f"{rustc}, {', '.join(found)}; {os.cpu_count()} processors"


def output(command):
    return subprocess.run(command, cwd=REPOSITORY, check=True, text=True, capture_output=True).stdout.strip()


if __name__ == "__main__":
    main()
