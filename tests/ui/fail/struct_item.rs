use lens_runtime::rl_span;

#[rl_span(group = Generation, name = "a")]
struct Engine;

fn main() {}
