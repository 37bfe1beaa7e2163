use lens_runtime::rl_span;

static TOOLS: u32 = 1;

#[rl_span(group = TOOLS, name = "a")]
fn f() {}

fn main() {}
