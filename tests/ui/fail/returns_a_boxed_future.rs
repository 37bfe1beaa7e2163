use lens_runtime::rl_span;
use std::future::Future;
use std::pin::Pin;

#[rl_span(group = Generation, name = "a")]
fn f() -> Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(async { 1 })
}

fn main() {}
