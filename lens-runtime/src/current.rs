//! What can code say about the call in which it runs?
//!
//! An annotation sees parameters and results. What lies between is said from within, by whatever code
//! runs in the call, on whatever thread has its context. Outside of any call nothing happens.

use opentelemetry::KeyValue;
use opentelemetry::trace::TraceContextExt as _;

use crate::span::Found;
use crate::value::{AttributeValue, TokenCounts};
use crate::{ambient, pipeline};

/// Sets an attribute of the span in which this runs: the innermost one, annotated or of another library. Of
/// several values for one key the last is recorded.
///
/// ```
/// use lens_runtime::{rl_span, set, testing::Capture};
///
/// #[rl_span(group = Rollout, name = "rl.rollout")]
/// fn rollout() {
///     let turns = 3;
///     set("rl.turns", turns);
/// }
///
/// let capture = Capture::new("rollout");
/// capture.run(rollout);
/// assert_eq!(capture.spans()[0].attribute("rl.turns").unwrap().to_string(), "3");
/// set("rl.turns", 1); // outside of a span: nothing happens
/// ```
pub fn set(key: &'static str, value: impl AttributeValue) {
    // The value may be made by code of the user's, which must be free to use the context.
    if ambient::with(|context| context.span().is_recording()) == Some(true)
        && let Some(value) = value.to_value()
    {
        ambient::with(|context| context.span().set_attribute(KeyValue::new(key, value)));
    }
}

/// Counts tokens of the innermost annotated call in which this runs, as its `tokens` argument does: one
/// number, or an iterable of one number per request, for each side.
///
/// ```
/// use lens_runtime::{record_tokens, rl_span, testing::Capture};
///
/// #[rl_span(group = Generation, name = "rl.generate", model = "tiny")]
/// fn generate() {
///     for chunk in [3_u32, 4] {
///         receive(chunk);
///     }
/// }
///
/// fn receive(tokens: u32) {
///     record_tokens(0_u32, tokens);
/// }
///
/// let capture = Capture::new("generation");
/// capture.run(generate);
/// assert_eq!(capture.spans()[0].attribute("gen_ai.usage.output_tokens").unwrap().to_string(), "7");
/// ```
pub fn record_tokens<Input, Output>(input: impl TokenCounts<Input>, output: impl TokenCounts<Output>) {
    // A copy, because a span of somebody else's is asked, too, and what it does is not ours to know.
    let context = ambient::current();
    if let Some(call) = Found::within(&context, &pipeline::table_of(&context)) {
        // Both may run code of the program's, which must not happen under a lock.
        let (mut of_input, mut of_output) = (Vec::new(), Vec::new());
        input.append_to(&mut of_input);
        output.append_to(&mut of_output);
        call.say(|call| {
            call.counted = true;
            call.input.append(&mut of_input);
            call.output.append(&mut of_output);
        });
    }
}
