use lens_runtime::rl_span;

struct Tensor;

#[rl_span(group = Reward, name = "a", attributes(batch = batch))]
fn f(batch: &Tensor) {}

fn main() {}
