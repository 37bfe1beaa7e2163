use lens_runtime::rl_span;

trait Engine {
    #[rl_span(group = Generation, name = "a")]
    fn generate(&self) -> u32;
}

fn main() {}
