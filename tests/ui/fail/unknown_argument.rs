use lens_runtime::rl_span;

#[rl_span(group = Reward, nmae = "reward", name = "reward")]
fn f() {}

fn main() {}
