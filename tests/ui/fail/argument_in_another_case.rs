use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a", Name = "b")]
fn f() {}

fn main() {}
