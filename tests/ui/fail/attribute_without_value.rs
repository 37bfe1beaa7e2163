use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a", attributes(batch))]
fn f(batch: u32) {}

fn main() {}
