//! How does Lens speak while the program runs? Through the program's own subscriber of `tracing`, and
//! where there is none, on standard error.

use std::io::Write as _;

use tracing::dispatcher;
use tracing::subscriber::NoSubscriber;

/// Something that whoever watches the run should know.
pub(crate) fn warn(about: &'static str, message: &'static str, detail: &str) {
    match is_heard() {
        true => tracing::warn!(about, detail, "{message}"),
        false => to_stderr(&format!("{message}: {about}: {detail}")),
    }
}

/// The end of it.
pub(crate) fn info(about: &'static str, message: &'static str) {
    match is_heard() {
        true => tracing::info!(about, "{message}"),
        false => to_stderr(&format!("{message}: {about}")),
    }
}

/// A line of ours. `eprintln!` would panic where standard error is closed.
pub(crate) fn to_stderr(text: &str) {
    let _nobody_listens = writeln!(std::io::stderr(), "lens: {text}");
}

/// Whether this thread has a subscriber: one that another thread set for itself hears nothing from here.
fn is_heard() -> bool {
    dispatcher::get_default(|subscriber| !subscriber.is::<NoSubscriber>())
}
