//! How did a call end?
//!
//! Whether a value is an error is decided by its type as rustc knows it where the function is
//! written, after aliases are resolved, and without asking anything of the error's type. Two
//! traits have a method of the same name; method resolution prefers the one that is implemented
//! with one reference less, which is the one for `Result`.

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

/// A value of which the outcome is asked.
pub struct ByType<'a, T>(pub &'a T);

/// The outcome of a `Result`.
pub trait ResultOutcome<'a> {
    /// The type of the value in `Ok`.
    type Value;
    /// What failed, if something did.
    fn failure(&self) -> Option<Failure>;
    /// The successful value, if there is one.
    fn success(&self) -> Option<&'a Self::Value>;
}

impl<'a, T, E> ResultOutcome<'a> for ByType<'a, Result<T, E>> {
    type Value = T;

    fn failure(&self) -> Option<Failure> {
        match self.0 {
            Ok(_) => None,
            Err(_) => Some(Failure { error_type: std::any::type_name::<E>() }),
        }
    }

    fn success(&self) -> Option<&'a T> {
        self.0.as_ref().ok()
    }
}

/// The outcome of anything else: it cannot fail.
pub trait AnyOutcome<'a> {
    /// The type of the value itself.
    type Value;
    /// Nothing.
    fn failure(&self) -> Option<Failure>;
    /// The value.
    fn success(&self) -> Option<&'a Self::Value>;
}

impl<'a, T> AnyOutcome<'a> for &ByType<'a, T> {
    type Value = T;

    fn failure(&self) -> Option<Failure> {
        None
    }

    fn success(&self) -> Option<&'a T> {
        Some(self.0)
    }
}
