use async_trait::async_trait;
use lens_runtime::rl_span;
use std::pin::Pin;

struct NotClone;

fn wants_clone<T: Clone>(_: T) {}

#[rl_span(group = Reward, name = "a")]
fn statement(list: Vec<u32>) -> u32 {
    let size: u32 = list.len();
    size
}

#[rl_span(group = Reward, name = "b")]
fn question(text: &str) -> Result<u32, std::fmt::Error> {
    Ok(text.parse::<u32>()?)
}

#[rl_span(group = Reward, name = "c")]
async fn bound() {
    wants_clone(NotClone);
}

#[rl_span(group = Reward, name = "d")]
fn opaque(text: String) -> impl Future<Output = u32> {
    async move { text.unknown() }
}

#[rl_span(group = Reward, name = "e")]
fn boxed() -> Pin<Box<dyn Future<Output = u32>>> {
    Box::pin(async { "one" })
}

#[async_trait]
trait Engine {
    async fn generate(&self) -> u32;
}

#[async_trait]
impl Engine for NotClone {
    #[rl_span(group = Generation, name = "f")]
    async fn generate(&self) -> u32 {
        let size: u32 = "one";
        size
    }
}

fn main() {}
