use lens_runtime::rl_span;

#[rl_span(group = Rewrd, name = "a")]
fn f() {}

fn main() {}
