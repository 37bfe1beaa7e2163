use lens_runtime::rl_span;

#[rl_span(groop = Reward, name = "", attributes(a = 1, a = 2, B.c), tokens(in = 1))]
const fn f() -> ! {
    loop {}
}

fn main() {
    // The function is there all the same: this is no further error.
    let _caller: fn() -> ! = f;
}
