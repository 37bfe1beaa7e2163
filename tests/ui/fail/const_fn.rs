use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a")]
const fn f() -> u32 {
    1
}

fn main() {}
