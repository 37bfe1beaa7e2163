use lens_runtime::rl_span;

#[rl_span(group = Reward)]
fn f() {}

fn main() {}
