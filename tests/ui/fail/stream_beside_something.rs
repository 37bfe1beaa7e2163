use lens_runtime::rl_span;

trait Stream {}
impl Stream for u32 {}

#[rl_span(group = Generation, name = "a")]
fn f() -> (impl Stream, u32) {
    (1_u32, 2)
}

fn main() {}
