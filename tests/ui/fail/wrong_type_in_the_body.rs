use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a")]
fn f() -> u32 {
    "one"
}

#[rl_span(group = Reward, name = "b")]
async fn g() -> u32 {
    let size = "one";
    size
}

fn main() {}
