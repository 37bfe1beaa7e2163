use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a")]
unsafe extern "C" fn f(_size: u32, _rest: ...) {}

fn main() {}
