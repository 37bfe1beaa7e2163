use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a", attributes(size = |out| out.len()))]
#[track_caller]
fn f() -> Vec<u32> {
    Vec::new()
}

fn main() {}
