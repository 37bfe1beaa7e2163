//! An `async fn` that runs until it is dropped.

use lens_runtime::rl_span;

#[rl_span(group = Job, name = "serve")]
async fn serve() -> ! {
    loop {
        std::future::pending::<()>().await;
    }
}

fn main() {
    drop(serve());
}
