use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a")]
#[track_caller]
fn f() {}

fn main() {}
