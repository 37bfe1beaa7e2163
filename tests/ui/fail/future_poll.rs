use lens_runtime::rl_span;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

struct Request;

impl Future for Request {
    type Output = u32;

    #[rl_span(group = Generation, name = "a")]
    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<u32> {
        Poll::Ready(1)
    }
}

fn main() {}
