use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a", links = ids)]
fn f(ids: &[u64]) {}

fn main() {}
