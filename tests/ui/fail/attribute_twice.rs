use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a", attributes(rl.size = 1, rl.size = 2))]
fn f() {}

fn main() {}
