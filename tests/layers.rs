//! A dozen futures in one another, bare and annotated, for a test to spawn: one crate's, spawned by another.

#![allow(clippy::missing_errors_doc, missing_docs, reason = "nothing but the depth of their types counts")]

use std::fmt::Debug;

use lens_runtime::rl_span;

/// Calls of one another, each over an `await`.
macro_rules! layers {
    ($($name:ident calls $next:ident,)+) => {
        pub mod bare {
            use super::*;
            layers! { @all [] [$([$name $next])+] }
        }
        pub mod annotated {
            use super::*;
            layers! { @all [#[rl_span(group = Rollout, name = "layer")]] [$([$name $next])+] }
        }
    };
    (@all $attribute:tt [$([$name:ident $next:ident])+]) => {
        $(layers! { @one $attribute $name $next })+
        layers! { @last $attribute }
    };
    (@one [$(#[$attribute:meta])?] $name:ident $next:ident) => {
        $(#[$attribute])?
        pub async fn $name<T: Debug + Send>(value: T) -> Result<T, String> {
            tokio::task::yield_now().await;
            $next(value).await
        }
    };
    (@last [$(#[$attribute:meta])?]) => {
        $(#[$attribute])?
        async fn innermost<T: Debug + Send>(value: T) -> Result<T, String> {
            tokio::task::yield_now().await;
            Ok(value)
        }
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
