use lens_runtime::rl_span;

#[rl_span(group = Group::Generation, name = "a")]
fn f() {}

#[rl_span(group = crate::Generation, name = "b")]
fn g() {}

fn main() {}
