use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a")]
fn f(list: &[u32]) -> usize {
    list.
}

#[rl_span(group = Reward, name = "b")]
fn g() -> u32 {
    let size:
}

fn main() {
    // The functions are there all the same: this is no further error.
    f(&[]);
    g();
}
