use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a", name = "b")]
fn f() {}

fn main() {}
