use lens_runtime::rl_span;
use std::future::{Ready, ready};

#[rl_span(group = Generation, name = "a")]
fn f() -> Ready<u32> {
    ready(1)
}

fn main() {}
