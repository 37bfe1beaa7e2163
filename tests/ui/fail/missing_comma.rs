use lens_runtime::rl_span;

#[rl_span(group = Reward name = "a")]
fn f() {}

fn main() {}
