//! A dozen annotated futures within one another, and one more, by the default limit of how deep types may go.

use lens_runtime::propagation::InContext as _;
use lens_runtime::rl_span;

/// Calls of one another, each over an `await`.
macro_rules! layers {
    ($($name:ident calls $next:ident,)+) => {
        $(
            #[rl_span(group = Rollout, name = stringify!($name))]
            async fn $name<T: Clone + Send>(value: T) -> Result<T, String> {
                std::future::ready(()).await;
                $next(value).await
            }
        )+
    };
}

layers! {
    layer_12 calls layer_11,
    layer_11 calls layer_10,
    layer_10 calls layer_9,
    layer_9 calls layer_8,
    layer_8 calls layer_7,
    layer_7 calls layer_6,
    layer_6 calls layer_5,
    layer_5 calls layer_4,
    layer_4 calls layer_3,
    layer_3 calls layer_2,
    layer_2 calls layer_1,
    layer_1 calls innermost,
}

#[rl_span(group = Rollout, name = "innermost")]
async fn innermost<T: Clone + Send>(value: T) -> Result<T, String> {
    std::future::ready(()).await;
    Ok(value)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let task = tokio::spawn(layer_12(vec![Some(1)]).in_current_context());
    assert_eq!(task.await.unwrap(), Ok(vec![Some(1)]));
}
