use lens_runtime::rl_span;

#[rl_span(group = Generation, name = "a", tokens(output = |out| out.as_str()))]
fn f() -> String {
    String::new()
}

fn main() {}
