use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a", kind = clinet, err = verbose, bucket = busy)]
fn f() {}

#[rl_span(group = Reward, name = "a", bucket = idle, umbrella)]
fn g() {}

fn main() {}
