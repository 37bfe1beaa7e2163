use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "")]
fn f() {}

fn main() {}
