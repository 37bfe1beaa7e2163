use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a", attributes(size = |a, b| 1))]
fn f() {}

fn main() {}
