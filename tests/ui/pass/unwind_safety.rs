//! A future may be caught when it panics if the bare one may.

use std::panic::UnwindSafe;

use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "asynchronous")]
async fn asynchronous(number: u32) -> u32 {
    std::future::ready(()).await;
    number
}

#[rl_span(group = Reward, name = "opaque")]
fn opaque(number: u32) -> impl Future<Output = u32> + Unpin {
    std::future::ready(number)
}

async fn bare(number: u32) -> u32 {
    std::future::ready(()).await;
    number
}

fn may_be_caught(_: impl UnwindSafe) {}

fn main() {
    may_be_caught(bare(1));
    may_be_caught(asynchronous(1));
    may_be_caught(opaque(1));
}
