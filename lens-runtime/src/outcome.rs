//! How did a call end?
//!
//! Whether a value is an error is decided by its type as rustc knows it where the function is
//! written, after aliases are resolved, and without asking anything of the error's type. Three
//! traits have a method of the same name, implemented with more or fewer references; method
//! resolution tries them in a fixed order.

use std::convert::Infallible;

/// The outcome of a call, as `rl.outcome` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Error(Failure),
    Panic,
    /// Dropped before it was done.
    Cancelled,
}

impl Outcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Error(_) => "error",
            Outcome::Panic => "panic",
            Outcome::Cancelled => "cancelled",
        }
    }

    /// `error.type` of the call, where it has one.
    pub(crate) const fn error_type(self) -> Option<&'static str> {
        match self {
            Outcome::Error(failure) => Some(failure.error_type),
            Outcome::Panic => Some("panic"),
            Outcome::Ok | Outcome::Cancelled => None,
        }
    }
}

/// What is told of an error: its type. Its text may quote a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(crate) error_type: &'static str,
}

impl Failure {
    /// What failed, if something did.
    pub(crate) fn of<T, E>(result: &Result<T, E>) -> Option<Self> {
        match result {
            Ok(_) => None,
            Err(_) => Some(Self { error_type: std::any::type_name::<E>() }),
        }
    }
}

/// A value of which the outcome is asked, by `(&&ByType(&out)).lens_failure()`: the method of
/// [`ResultOutcome`] is found first, then that of [`FutureOutcome`], then that of [`AnyOutcome`]. The names
/// are ours alone, since a trait of the user's may be in scope that has its methods for every type.
pub struct ByType<'a, T>(pub &'a T);

/// The outcome of a `Result`.
pub trait ResultOutcome<'a> {
    /// The type of the value in `Ok`.
    type Value;
    /// The type of the value in `Err`.
    type Error;
    /// What failed, if something did.
    fn lens_failure(&self) -> Option<Failure>;
    /// The successful value, if there is one.
    fn lens_success(&self) -> Option<&'a Self::Value>;
    /// The error, if there is one.
    fn lens_error(&self) -> Option<&'a Self::Error>;
}

impl<'a, T, E> ResultOutcome<'a> for &ByType<'a, Result<T, E>> {
    type Value = T;
    type Error = E;

    fn lens_failure(&self) -> Option<Failure> {
        Failure::of(self.0)
    }

    fn lens_success(&self) -> Option<&'a T> {
        self.0.as_ref().ok()
    }

    fn lens_error(&self) -> Option<&'a E> {
        self.0.as_ref().err()
    }
}

/// The outcome of a future that was returned: it has none yet. A compile error, never a measurement
/// close to zero.
pub trait FutureOutcome {
    /// Does not compile.
    fn lens_failure(&self) -> Option<Failure>
    where
        Self: DoneWhenReturned;
}

impl<F: Future> FutureOutcome for &&ByType<'_, F> {
    fn lens_failure(&self) -> Option<Failure> {
        None
    }
}

/// Implemented for nothing.
#[diagnostic::on_unimplemented(
    message = "this function returns a future before its work is done, so its span would measure nothing",
    label = "this is a future",
    note = "return `impl Future` or `Pin<Box<dyn Future>>`, which are followed until they are done, or make it an \
            `async fn` that awaits the future"
)]
pub trait DoneWhenReturned {}

/// The outcome of anything else: it cannot fail.
pub trait AnyOutcome<'a> {
    /// The type of the value itself.
    type Value;
    /// Nothing.
    fn lens_failure(&self) -> Option<Failure>;
    /// The value.
    fn lens_success(&self) -> Option<&'a Self::Value>;
    /// None.
    fn lens_error(&self) -> Option<&'a Infallible>;
}

impl<'a, T> AnyOutcome<'a> for ByType<'a, T> {
    type Value = T;

    fn lens_failure(&self) -> Option<Failure> {
        None
    }

    fn lens_success(&self) -> Option<&'a T> {
        Some(self.0)
    }

    fn lens_error(&self) -> Option<&'a Infallible> {
        None
    }
}
