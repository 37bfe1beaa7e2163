use lens_runtime::rl_span;

#[rl_span]
fn f() {}

fn main() {}
