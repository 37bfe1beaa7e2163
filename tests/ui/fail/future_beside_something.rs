use lens_runtime::rl_span;
use std::future::Future;

#[rl_span(group = Generation, name = "a")]
fn f() -> (impl Future<Output = u32>, u32) {
    (async { 1 }, 2)
}

fn main() {}
