//! A trait of the user's whose methods every type has is no obstacle, whatever their names.

use lens_runtime::rl_span;

trait Everything: Sized {
    fn run(self) -> Self {
        self
    }
    fn is_on(self) -> Self {
        self
    }
    fn settle(self) -> Self {
        self
    }
    fn has_span(self) -> Self {
        self
    }
    fn attribute(self) -> Self {
        self
    }
    fn failure(&self) -> u32 {
        1
    }
    fn success(&self) -> u32 {
        1
    }
    fn error(&self) -> u32 {
        1
    }
}

impl<T> Everything for T {}

#[rl_span(group = Reward, name = "methods", attributes(size = 1, twice = |out| *out * 2), err = message)]
fn methods() -> Result<u32, String> {
    Ok(1.run().is_on().settle().has_span().attribute())
}

fn main() {
    assert_eq!(methods(), Ok(1));
    assert_eq!(1.failure() + 1.success() + 1.error(), 3);
}
