use lens_runtime::rl_span;

#[rl_span(group = reward, name = "a")]
fn f() {}

fn main() {}
