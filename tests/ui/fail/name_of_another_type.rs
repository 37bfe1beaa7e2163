use lens_runtime::rl_span;

fn name() -> String {
    String::new()
}

#[rl_span(group = Reward, name = name())]
fn f() {}

fn main() {}
