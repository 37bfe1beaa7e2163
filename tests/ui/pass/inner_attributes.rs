//! Attributes at the top of a body mean what they mean for the bare function.
#![deny(warnings, missing_docs)]

use lens_runtime::rl_span;

/// A module of a library.
pub mod library {
    use super::rl_span;

    #[rl_span(group = Reward, name = "documented")]
    pub fn documented() -> u32 {
        //! Documented from within.
        #![expect(unused_variables, reason = "the lint is expected, and comes")]
        let unused = 1;
        2
    }

    /// An `async fn`.
    #[rl_span(group = Reward, name = "asynchronous")]
    pub async fn asynchronous() {
        #![allow(unused_mut, reason = "it is allowed here")]
        let mut number = 1;
        std::future::ready(number).await;
    }
}

fn main() {
    library::documented();
    drop(library::asynchronous());
}
