//! Which context is current, on a thread that may be ending?
//!
//! OpenTelemetry keeps it in a thread-local variable and panics where that is gone, as in the destructor of
//! another one, which would end the process. So whatever asks for it asks here.

use std::panic::catch_unwind;

use opentelemetry::{Context, ContextGuard};

/// Looks at the current context; `None` if it is gone.
pub(crate) fn with<R>(look: impl FnOnce(&Context) -> R) -> Option<R> {
    is_there().then(|| Context::map_current(look))
}

/// The current context, or an empty one.
pub(crate) fn current() -> Context {
    with(Context::clone).unwrap_or_default()
}

/// Makes a context the current one, until what is returned is dropped.
pub(crate) fn attach(context: Context) -> Option<ContextGuard> {
    is_there().then(|| context.attach())
}

thread_local! {
    static WITNESS: Witness = Witness::new();
}

/// Goes before OpenTelemetry's variable goes: of the variables of a thread the one that was used first is the last
/// to be dropped, and this one is made by using that one.
struct Witness {
    was_there: bool,
}

impl Witness {
    fn new() -> Self {
        Self { was_there: catch_unwind(|| Context::map_current(|_| ())).is_ok() }
    }
}

impl Drop for Witness {
    // Without it there would be nothing to be gone.
    fn drop(&mut self) {
        self.was_there = false;
    }
}

fn is_there() -> bool {
    WITNESS.try_with(|witness| witness.was_there).unwrap_or(false)
}
