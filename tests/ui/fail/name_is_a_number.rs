use lens_runtime::rl_span;

#[rl_span(group = Reward, name = 7)]
fn f() {}

fn main() {}
