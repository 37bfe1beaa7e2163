//! The compile-time half of Lens: `#[rl_span]`.
//!
//! Do not depend on this crate. Depend on `lens-runtime`, which re-exports the attribute together
//! with what its expansion calls; the two must be of the very same version.
//!
//! This crate knows syntax. It knows no span group, no attribute or metric name and no
//! OpenTelemetry: a group that does not exist is rustc's error on the user's token, not ours.
//!
//! Three rooms, in the order in which an annotation passes through them: `args` (tokens to
//! arguments, spans kept), `check` (arguments and function to a plan, or every mistake at once),
//! `expand` (plan to tokens). Beside the last one
//! `parameters` (how they get to the body) and `lint` (what clippy is shown instead).

mod args;
mod check;
mod errors;
mod expand;
mod lint;
mod parameters;

use proc_macro::TokenStream;

/// Records each call of a function as one span, with its latency, its tokens and one outcome.
///
/// ```
/// use lens_runtime::rl_span;
///
/// struct Rollouts(Vec<Vec<u32>>);
///
/// #[rl_span(
///     group = Generation,
///     name = "rl.vllm.generate",
///     attributes(rl.engine.index = engine, greedy = temperature == 0.0),
///     tokens(input = prompts.iter().map(Vec::len), output = |out| out.0.iter().map(Vec::len)),
///     model = "tiny-llama",
///     provider = "vllm",
/// )]
/// async fn generate(engine: usize, prompts: &[Vec<u32>], temperature: f32) -> Result<Rollouts, String> {
///     Ok(Rollouts(prompts.to_vec()))
/// }
/// ```
///
/// # Arguments
///
/// | argument | what it is |
/// |---|---|
/// | `group = Generation` | required; a built-in span group (`lens_runtime::groups`) by its bare name, or your own `static SpanGroup` by its name (`TOOLS`) or path (`crate::groups::TOOLS`). A bare name with a lower-case letter in it is a built-in group's |
/// | `name = "rl.vllm.generate"` | required; any expression of type `&'static str`, also `A::NAME` of a generic parameter. Evaluated after the gate |
/// | `attributes(key = value, …)` | span attributes. A key is dotted words (`rl.engine.index`), a string, or the path of a `&'static str` constant (`semconv::ITERATION`, `MY_KEY`). A value is anything that implements `lens_runtime::AttributeValue`; it is borrowed and copied. A closure of one argument receives a reference to the successful value |
/// | `tokens(input = …, output = …)` | token counts, one number or an iterable of numbers; an iterable means one request each. A closure receives a reference to the successful value |
/// | `tokens = …` | both sides at once: a pair of what each may be, or `lens_runtime::Usage`; mostly a closure, `tokens = \|out\| out.usage` |
/// | `latencies = …` | how long each request of the call took, as `Duration`s, by value or by closure; `gen_ai.client.operation.duration` is recorded for each of them instead of for the call |
/// | `model = …`, `provider = …`, `operation = …` | strings for `gen_ai.request.model`, `gen_ai.provider.name` and `gen_ai.operation.name` |
/// | `step = n` | the number of the training step that begins here; whatever runs beneath reads it with `lens_runtime::current_step` |
/// | `err = status` | how much of an error is told: `off` (the span has not failed; its outcome is `error` all the same), `status` (the default: the status and the error's type), `message` (its text too, by `Display`) or `chain` (with its causes, by `std::error::Error`). Texts of errors quote prompts and answers |
/// | `kind = client` | the span's kind: `internal` (the default), `server`, `client`, `producer` or `consumer` |
/// | `bucket = idle`, `umbrella` | what the span's time counts as, instead of what its group says: `productive`, `overhead`, `idle` or `wasted`; or nothing, because it encloses other spans |
/// | `key = request.id` | what the call is about, an integer or a string: of a group of which a share is kept (`span_groups: per_prompt@0.1`), calls with the same key are all kept or all left out, in every process of the run. Without it, the number of the call within its step decides |
/// | `parent = …`, `links = …` | the span's parent instead of the current span, a `Context` or `SpanContext` of OpenTelemetry, or an `Option` of one; spans that it has to do with, an iterable of them. Only the parent's span counts, not its baggage |
/// | `crate = path` | where `lens-runtime` is found, if it was renamed or is re-exported; `::lens_runtime` by default |
///
/// Nothing else is recorded: no argument, no return value, no error text.
///
/// # What is recorded
///
/// When the group is on, a span with the outcome in `rl.outcome`: `ok`, `error` (the function
/// returned `Err`; the span's status is error and `error.type` is the error's type), `panic`, or
/// `cancelled` (an `async` call that was dropped before it was done). When metrics are on, and
/// whether or not the group is, `rl.phase.duration`, and with `tokens` or `operation` the
/// `gen_ai.client.*` metrics.
///
/// When the group and metrics are off, the call costs one atomic load, and no expression of the
/// annotation is evaluated.
///
/// # What it expands to
///
/// ```
/// # use lens_runtime as rt;
/// // #[rl_span(group = Reward, name = "rl.grpo.reward_calculation", attributes(size = answers.len()))]
/// // fn reward(answers: &[u32]) -> Result<f64, String> { Ok(answers.len() as f64) }
/// fn reward(answers: &[u32]) -> Result<f64, String> {
///     let mut call = match rt::__private::enter(&rt::groups::Reward) {
///         Some(mut entry) => {
///             if rt::__private::Entry::has_span(&entry) {
///                 rt::__private::Entry::attribute(&mut entry, "size", &(answers.len()));
///             }
///             rt::__private::Entry::scope(entry, "rl.grpo.reward_calculation")
///         }
///         None => rt::__private::Scope::OFF,
///     };
///     let arguments = (answers,);
///     let out = rt::__private::run(arguments, move |(answers,)| -> Result<f64, String> {
///         Ok(answers.len() as f64)
///     });
///     if let Some(open) = rt::__private::Scope::recorded(&mut call) {
///         rt::__private::Open::settle(open, rt::__private::by_type(&out).lens_failure());
///     }
///     out
/// }
/// # assert_eq!(reward(&[1, 2]), Ok(2.0));
/// ```
///
/// An `async fn` stays one; its body becomes one wrapped future that carries the span through
/// every suspension.
///
/// A function that returns `impl Future` or `Pin<Box<dyn Future>>` (as `#[async_trait]` makes them of
/// methods) is recorded from the call until that future is done; one that is never polled counts as
/// nothing, like an `async fn`. One that returns `impl Stream` or `Pin<Box<dyn Stream>>` is recorded until
/// the end of the stream, or until it is dropped, with the number of its items and the time to the first.
/// Its outcome is `error` if one of its items is an `Err`; closures of `tokens` get each item, and what they
/// count is that of one request. What the consumer does between two items is not the stream's.
///
/// What cannot stand in a closure keeps its body where it is: functions that are `#[track_caller]`, that
/// never return (`-> !`) or that return another `impl Trait`. Their outcome is `ok` or `panic`, also where
/// they return a `Result`, and an annotation of theirs cannot use the result.
///
/// To clippy the expansion shows the function as you wrote it, so that its lints
/// say of an annotated function what they say of any other, and your `#[allow]` and `#[expect]` work. Two
/// are silent: `missing_const_for_fn`, because a `const fn` cannot be annotated, and `manual_async_fn`.
///
/// # What is refused
///
/// `const fn`, functions that return a future or stream as part of something else, or a future by a type of
/// its own, `Future::poll`, trait methods without a body and whole `impl` blocks are compile errors that
/// say what to annotate instead.
#[proc_macro_attribute]
pub fn rl_span(args: TokenStream, item: TokenStream) -> TokenStream {
    match check::plan(args.into(), item.clone().into()) {
        Ok(plan) => expand::expand(&plan).into(),
        Err(errors) => errors.beside(item.into()).into(),
    }
}
