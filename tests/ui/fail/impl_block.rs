use lens_runtime::rl_span;

struct Engine;

#[rl_span(group = Generation, name = "a")]
impl Engine {
    fn generate(&self) -> u32 {
        1
    }
}

fn main() {}
