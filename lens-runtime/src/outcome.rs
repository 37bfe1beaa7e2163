//! How did a call end?
//!
//! Whether a value is an error is decided by its type as rustc knows it where the function is
//! written, after aliases are resolved, and without asking anything of the error's type: see
//! [`ByType`].

use std::convert::Infallible;
use std::ops::Deref;

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

/// A value of which the outcome is asked by its type: `by_type(&out).lens_failure()`.
///
/// Three types have methods of the same names. This one has them for a `Result`; if the value is none, method
/// resolution goes on to what it derefs to, [`OfFuture`], and then to [`OfAny`]. The methods are inherent, so
/// that nothing has to be in scope, and named as nobody else names theirs, since a trait of the user's may be
/// in scope that has its methods for every type.
pub struct ByType<'a, T>(OfFuture<'a, T>);

/// A value of which the outcome is asked by its type.
#[inline]
pub fn by_type<T>(value: &T) -> ByType<'_, T> {
    ByType(OfFuture(OfAny(value)))
}

/// The outcome of a `Result`.
impl<'a, T, E> ByType<'a, Result<T, E>> {
    /// What failed, if something did.
    #[inline]
    pub fn lens_failure(&self) -> Option<Failure> {
        Failure::of(self.0.0.0)
    }

    /// The successful value, if there is one.
    pub fn lens_success(&self) -> Option<&'a T> {
        self.0.0.0.as_ref().ok()
    }

    /// The error, if there is one.
    pub fn lens_error(&self) -> Option<&'a E> {
        self.0.0.0.as_ref().err()
    }
}

impl<'a, T> Deref for ByType<'a, T> {
    type Target = OfFuture<'a, T>;

    fn deref(&self) -> &OfFuture<'a, T> {
        &self.0
    }
}

/// The outcome of a future that was returned: it has none yet. A compile error, never a measurement
/// close to zero.
pub struct OfFuture<'a, T>(OfAny<'a, T>);

#[expect(clippy::unused_self, reason = "the methods are those of `ByType`")]
impl<F: Future> OfFuture<'_, F> {
    /// Does not compile.
    pub fn lens_failure(&self) -> Option<Failure>
    where
        Self: DoneWhenReturned,
    {
        None
    }
}

impl<'a, T> Deref for OfFuture<'a, T> {
    type Target = OfAny<'a, T>;

    fn deref(&self) -> &OfAny<'a, T> {
        &self.0
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
pub struct OfAny<'a, T>(&'a T);

#[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the methods are those of `ByType`")]
impl<'a, T> OfAny<'a, T> {
    /// Nothing.
    #[inline]
    pub fn lens_failure(&self) -> Option<Failure> {
        None
    }

    /// The value.
    pub fn lens_success(&self) -> Option<&'a T> {
        Some(self.0)
    }

    /// None.
    pub fn lens_error(&self) -> Option<&'a Infallible> {
        None
    }
}
