use futures_core::Stream;
use lens_runtime::rl_span;

#[rl_span(group = Generation, name = "a", attributes(size = |item| item.len()))]
fn f(stream: impl Stream<Item = String>) -> impl Stream<Item = String> {
    stream
}

fn main() {}
