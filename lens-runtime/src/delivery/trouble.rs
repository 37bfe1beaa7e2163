//! What is said of delivery while the program runs?

use std::time::Duration;

use tokio::time::Instant;

use crate::notice;
use crate::signal::Signal;

/// At most one warning per signal in this time.
const QUIET_FOR: Duration = Duration::from_secs(60);

/// One line when delivery begins to fail, one when it works again.
pub(super) struct Trouble {
    signal: Signal,
    is_on: bool,
    /// When something was said last.
    told: Option<Instant>,
    /// Whether it was said that trouble began.
    is_told: bool,
}

impl Trouble {
    pub(super) fn new(signal: Signal) -> Self {
        Self { signal, is_on: false, told: None, is_told: false }
    }

    pub(super) fn begins(&mut self, cause: &str) {
        let is_news = !std::mem::replace(&mut self.is_on, true);
        if is_news && self.may_speak() {
            self.is_told = true;
            notice::warn(self.signal.as_str(), "telemetry does not get through", cause);
        }
    }

    pub(super) fn is_over(&mut self) {
        self.is_on = false;
        if std::mem::take(&mut self.is_told) {
            notice::info(self.signal.as_str(), "telemetry gets through again");
        }
    }

    /// A receiver took a body, or part of it, and had something to say.
    pub(super) fn complaint(&mut self, text: &str) {
        self.is_over();
        if self.may_speak() {
            notice::warn(self.signal.as_str(), "the receiver of telemetry complains", text);
        }
    }

    fn may_speak(&mut self) -> bool {
        let may = self.told.is_none_or(|told| told.elapsed() >= QUIET_FOR);
        if may {
            self.told = Some(Instant::now());
        }
        may
    }
}
