use lens_runtime::rl_span;

#[rl_span(group = Generation, name = "a", model = |out| "llama")]
fn f() {}

fn main() {}
