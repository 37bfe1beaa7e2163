use lens_runtime::rl_span;

#[rl_span(group = Generation, name = "a", tokens = 5_u32)]
fn f() {}

fn main() {}
