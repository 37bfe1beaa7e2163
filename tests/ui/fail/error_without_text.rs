use lens_runtime::rl_span;

struct Silent;

#[rl_span(group = Reward, name = "a", err = message)]
fn f() -> Result<(), Silent> {
    Ok(())
}

#[rl_span(group = Reward, name = "a", err = chain)]
fn g() -> Result<(), String> {
    Ok(())
}

fn main() {}
