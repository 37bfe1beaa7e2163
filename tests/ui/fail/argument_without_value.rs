use lens_runtime::rl_span;

#[rl_span(group, name = "a")]
fn f() {}

fn main() {}
