use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "question", attributes(size = text.parse::<u32>()?))]
fn question(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.parse()
}

#[rl_span(group = Reward, name = "macro", attributes(size = ensure!(text)))]
fn of_a_macro(text: &str) -> Option<u32> {
    text.parse().ok()
}

#[rl_span(group = Reward, name = "await", tokens(input = size().await))]
async fn awaits() {}

async fn size() -> u32 {
    1
}

macro_rules! ensure {
    ($text:ident) => {
        if $text.is_empty() { return None } else { 1 }
    };
}
use ensure;

fn main() {}
