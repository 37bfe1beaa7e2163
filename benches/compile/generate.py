"""What do the crates look like of which the compile time is measured?

`write` makes a cargo workspace with one program for each of two kinds of function, sync and async, and
each `Variant`: bare, annotated with Lens, and annotated with one of its peers. The programs of one kind
have the same functions with the same bodies; only the attribute and the dependency differ. A second
program of each variant has the attribute on its first function alone: what a dependency costs that is
used at all, whatever the number of annotations.

The same arguments make the same text, byte for byte.
"""

import os
from dataclasses import dataclass
from pathlib import Path

KINDS = ("sync", "async")
# How the name of a program ends that has the attribute once.
ONE = "-one"
# As many functions as a file of a trainer may have. The counts are multiples of it, so that the tables of
# all modules have one type.
PER_MODULE = 25


@dataclass(frozen=True)
class Variant:
    """One way to annotate. `{lens}` in the dependency is the path of the runtime."""

    name: str
    dependency: str
    attribute: str


# Each gives the span a name of its own and one attribute from the parameter `limit`.
BARE = Variant("bare", "", "")
VARIANTS = (
    BARE,
    Variant(
        "lens",
        'lens-runtime = {{ path = "{lens}" }}',
        '#[lens_runtime::rl_span(group = Reward, name = "{name}", attributes(reward.limit = limit))]',
    ),
    Variant(
        "tracing",
        'tracing = {{ version = "0.1", default-features = false, features = ["attributes", "std"] }}',
        '#[tracing::instrument(skip_all, name = "{name}", fields(reward.limit = limit))]',
    ),
    # Lens tells an error from a value, and its peer does so where it is asked to.
    Variant(
        "tracing-err",
        'tracing = {{ version = "0.1", default-features = false, features = ["attributes", "std"] }}',
        '#[tracing::instrument(skip_all, err(Debug), name = "{name}", fields(reward.limit = limit))]',
    ),
    Variant(
        "fastrace",
        'fastrace = {{ version = "0.7", features = ["enable"] }}',
        '#[fastrace::trace(name = "{name}", properties = {{ "reward.limit": "{{limit}}" }})]',
    ),
)

# Small bodies of four shapes. The numbers in them differ from function to function, so that the compiler
# finds no two of them equal. `{fetch}` is a call of a function that is not annotated in any variant.
BODIES = (
    """\
    let mut sum = {number}_u64;
    for row in rows {{
        sum = sum.wrapping_mul(31).wrapping_add(row % limit.max(1));
    }}
    if sum == {odd} {{
        return Err(Failure::TooLarge(sum));
    }}
    Ok(sum / 3)
""",
    """\
    let first = {fetch}?;
    let above = rows.iter().filter(|row| **row > limit + {number}).count() as u64;
    if above > {odd} {{
        return Err(Failure::TooLarge(above));
    }}
    Ok(first.wrapping_add(above * {odd}))
""",
    """\
    let largest = rows.iter().copied().max().ok_or(Failure::Empty)?;
    let scale = match largest {{
        0 => 1,
        small if small < limit => small + {number},
        _ => {odd},
    }};
    Ok({fetch}? / scale)
""",
    """\
    let mut state = limit ^ {odd};
    for (index, row) in rows.iter().enumerate() {{
        if *row == {number} {{
            return Ok(index as u64);
        }}
        state = state.rotate_left(7) ^ row;
    }}
    match state {{
        0 => Err(Failure::Empty),
        state => Ok(state % {odd}),
    }}
""",
)

# What the functions share.
COMMON = {
    "sync": """\
#[derive(Debug)]
pub enum Failure {
    Empty,
    TooLarge(u64),
}

#[inline(never)]
pub fn fetch(rows: &[u64], at: u64) -> Result<u64, Failure> {
    rows.get(at as usize % rows.len().max(1)).copied().ok_or(Failure::Empty)
}
""",
    "async": """\
use std::task::Poll;

#[derive(Debug)]
pub enum Failure {
    Empty,
    TooLarge(u64),
}

/// Waits once, as a request would.
pub async fn fetch(rows: &[u64], at: u64) -> Result<u64, Failure> {
    let mut is_ready = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        match std::mem::replace(&mut is_ready, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    rows.get(at as usize % rows.len().max(1)).copied().ok_or(Failure::Empty)
}
""",
}

# The functions are called through tables, the async ones as boxed futures, which is how `#[async_trait]`
# has them: a function with one caller would be inlined into it, and what is measured would be one large
# function instead of many small ones.
MAIN = {
    "sync": """\
fn main() {{
    let rows = [3, 1, 4, 1, 5, 9, 2, 6];
    let mut total = 0_u64;
    for function in [{modules}].into_iter().flatten() {{
        match function(&rows, 4) {{
            Ok(value) => total = total.wrapping_mul(3).wrapping_add(value),
            Err(failure) => println!("{{failure:?}}"),
        }}
    }}
    println!("{{total}}");
}}
""",
    "async": """\
fn main() {{
    let rows = [3, 1, 4, 1, 5, 9, 2, 6];
    let mut total = 0_u64;
    for function in [{modules}].into_iter().flatten() {{
        match wait(function(&rows, 4)) {{
            Ok(value) => total = total.wrapping_mul(3).wrapping_add(value),
            Err(failure) => println!("{{failure:?}}"),
        }}
    }}
    println!("{{total}}");
}}

fn wait<T>(mut future: std::pin::Pin<Box<dyn Future<Output = T> + '_>>) -> T {{
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {{
        if let std::task::Poll::Ready(out) = future.as_mut().poll(&mut context) {{
            return out;
        }}
    }}
}}
""",
}


def package(kind, variant, is_one=False):
    """The name of a program. `is_one`: that which has the attribute once."""
    return f"{kind}-{variant.name}" + (ONE if is_one else "")


def packages():
    """Every program: its kind, its variant, and whether it has the attribute once."""
    for kind in KINDS:
        for variant in VARIANTS:
            yield kind, variant, False
        for variant in VARIANTS:
            if variant is not BARE:
                yield kind, variant, True


def write(folder, repository, counts):
    """Writes the workspace. `counts` says how many functions there are of each kind."""
    # The dependencies of Lens as they are tested; cargo adds those of the peers.
    put(folder / "Cargo.lock", (repository / "Cargo.lock").read_text())
    members = [package(*which) for which in packages()]
    put(folder / "Cargo.toml", f"[workspace]\nresolver = \"3\"\nmembers = {members}\n".replace("'", '"'))
    for kind, variant, is_one in packages():
        write_program(folder / package(kind, variant, is_one), repository, kind, variant, is_one, counts[kind])


def write_program(folder, repository, kind, variant, is_one, count):
    lens = os.path.relpath(repository / "lens-runtime", folder)
    put(
        folder / "Cargo.toml",
        f'[package]\nname = "{folder.name}"\nedition = "2024"\n\n'
        f"[dependencies]\n{variant.dependency.format(lens=lens)}\n",
    )
    put(folder / "src/common.rs", COMMON[kind])
    modules = [range(first, first + PER_MODULE) for first in range(0, count, PER_MODULE)]
    for index, numbers in enumerate(modules):
        functions = [function(kind, BARE if is_one and number else variant, number) for number in numbers]
        uses = "use crate::common::{Failure, fetch};\n" + ("use std::pin::Pin;\n" if kind == "async" else "")
        text = "\n".join([uses, *functions, table(kind, numbers)])
        put(folder / f"src/phase_{index:02}.rs", text)
    names = [f"phase_{index:02}" for index in range(len(modules))]
    declared = "".join(f"mod {name};\n" for name in names)
    called = MAIN[kind].format(modules=", ".join(f"{name}::ALL" for name in names))
    put(folder / "src/main.rs", f"#![allow(dead_code)]\n\nmod common;\n{declared}\n{called}")


def function(kind, variant, number):
    """One function, with its attribute."""
    fetch = f"fetch(rows, limit + {number})" + (".await" if kind == "async" else "")
    # An async function that does not wait is rare.
    body = BODIES[number % len(BODIES)].format(number=number + 2, odd=2 * number + 1001, fetch=fetch)
    if kind == "async" and ".await" not in body:
        body = f"    let limit = limit.max({fetch}?);\n" + body
    attribute = variant.attribute.format(name=f"bench.reward_{number:04}")
    keyword = "async " if kind == "async" else ""
    head = f"pub {keyword}fn reward_{number:04}(rows: &[u64], limit: u64) -> Result<u64, Failure> {{\n"
    return (f"{attribute}\n" if attribute else "") + head + body + "}\n"


def table(kind, numbers):
    """The functions of a module, to be called."""
    names = [f"reward_{number:04}" for number in numbers]
    match kind:
        case "sync":
            ty, entries = "fn(&[u64], u64) -> Result<u64, Failure>", names
        case "async":
            ty = "for<'a> fn(&'a [u64], u64) -> Pin<Box<dyn Future<Output = Result<u64, Failure>> + 'a>>"
            entries = [f"|rows, limit| Box::pin({name}(rows, limit))" for name in names]
    listed = "".join(f"    {entry},\n" for entry in entries)
    return f"pub static ALL: [{ty}; {len(names)}] = [\n{listed}];\n"


def put(path, text):
    """Writes a file unless it is so already: cargo looks at the time of a file."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
