//! Who is asked whether a span is recorded, and in which order?
//!
//! The sampler first, whoever makes the span. Of what it keeps, the choice of steps and the share of a group take away.
//! Of what is within a call that has no span then nobody is asked at all: no part of a tree is without its root.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use opentelemetry::trace::{Link, SpanKind, TraceContextExt as _, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};

use super::record::Record;
use crate::sampling::{
    BuiltInSampler, Draw, Key, Ordinals, OwnedKey, Root, Share, randomness, randomness_of_trace, thinned,
};
use crate::step;

/// What was decided of a span.
pub(super) struct Verdict {
    pub(super) is_recorded: bool,
    pub(super) is_sampled: bool,
    pub(super) state: TraceState,
}

impl Verdict {
    pub(super) fn plain(is_kept: bool, state: TraceState) -> Self {
        Self { is_recorded: is_kept, is_sampled: is_kept, state }
    }
}

/// Who is asked first.
pub(crate) enum Sampling {
    BuiltIn(BuiltInSampler),
    /// The program's own.
    Own(Box<dyn ShouldSample>),
}

impl Sampling {
    /// What the sampler says of a span.
    pub(super) fn decide(&self, record: &mut Record, parent: &Context) -> Verdict {
        let span = parent.span();
        let ids = span.span_context();
        let state = ids.trace_state().clone();
        match self {
            Self::BuiltIn(sampler) => {
                let is_sampled = ids.is_valid().then(|| ids.is_sampled());
                Verdict::plain(sampler.decide(is_sampled, record.facts.trace), state)
            }
            Self::Own(sampler) => {
                let attributes = record.attributes_so_far();
                let links = record.extras.as_ref().map_or(&[][..], |extras| &extras.links.links);
                let said = ask(
                    &**sampler,
                    parent,
                    record.facts.trace,
                    record.facts.called,
                    &record.kind(),
                    &attributes,
                    links,
                );
                for attribute in said.attributes {
                    record.attributes.set(attribute, u32::MAX);
                }
                let (is_recorded, is_sampled) = match said.decision {
                    SamplingDecision::Drop => (false, false),
                    SamplingDecision::RecordOnly => (true, false),
                    SamplingDecision::RecordAndSample => (true, true),
                };
                Verdict { is_recorded, is_sampled, state: said.trace_state }
            }
        }
    }

    /// Whether the ids of traces are as good as random among those that it samples.
    pub(super) fn leaves_ids_random(&self) -> bool {
        matches!(self, Self::BuiltIn(BuiltInSampler { root: Root::On | Root::Off, .. }))
    }
}

/// Asks a sampler of the program's. One that panics has not said that the span is to be recorded.
fn ask(
    sampler: &dyn ShouldSample,
    parent: &Context,
    trace_id: TraceId,
    name: &str,
    kind: &SpanKind,
    attributes: &[KeyValue],
    links: &[Link],
) -> SamplingResult {
    let ask = || sampler.should_sample(Some(parent), trace_id, name, kind, attributes, links);
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| dropped(parent))
}

fn dropped(parent: &Context) -> SamplingResult {
    SamplingResult {
        decision: SamplingDecision::Drop,
        attributes: Vec::new(),
        trace_state: parent.span().span_context().trace_state().clone(),
    }
}

/// What is asked of a call that a sampler keeps.
pub(super) struct Thinning {
    pub(super) run_id: Arc<str>,
    pub(super) ordinals: Arc<Ordinals>,
    pub(super) share: Share,
    pub(super) is_in_steps: bool,
    pub(super) group: &'static str,
    pub(super) step: Option<u64>,
    pub(super) key: Option<Box<OwnedKey>>,
    pub(super) ids_are_random: bool,
}

impl Thinning {
    /// The choice of steps and the share of the group: they only take away.
    pub(super) fn thin(&self, sampled: Verdict, trace_id: TraceId) -> Verdict {
        if !sampled.is_sampled {
            return sampled;
        }
        if !self.is_in_steps {
            return Verdict::plain(false, sampled.state);
        }
        if self.share == Share::ALL {
            return sampled;
        }
        let draw = self.draw(trace_id);
        match self.share.keeps(draw.randomness()) {
            true => Verdict { state: thinned(&sampled.state, self.share, draw), ..sampled },
            false => Verdict::plain(false, sampled.state),
        }
    }

    /// What decides about a call, in the same way in every process: its key, or its number among those of its step;
    /// outside of a step, its trace.
    fn draw(&self, trace_id: TraceId) -> Draw {
        let of_call = |step, key: Key<'_>| Draw::OfCall(randomness(&self.run_id, self.group, step, key));
        match (&self.key, self.step) {
            (Some(key), step) => of_call(step.unwrap_or_default(), key.as_key()),
            (None, Some(step)) => of_call(step, Key::Ordinal(self.ordinals.next(self.group, step))),
            (None, None) if self.ids_are_random => Draw::OfTrace(randomness_of_trace(trace_id)),
            // A sampler that decides by the ids has left some of them only.
            (None, None) => of_call(0, Key::Text(&trace_id.to_string())),
        }
    }
}

thread_local! {
    /// What the SDK's tracer is to ask of the annotated call whose span it is about to make.
    static THINNING: RefCell<Option<Thinning>> = const { RefCell::new(None) };
}

/// Makes a span of the SDK's for an annotated call.
pub(super) fn with_thinning<R>(thinning: Thinning, make: impl FnOnce() -> R) -> R {
    let _earlier = THINNING.try_with(|place| place.replace(Some(thinning)));
    let out = make();
    // Not asked for where telemetry is suppressed.
    let _left = THINNING.try_with(RefCell::take);
    out
}

/// The sampler for spans of the SDK's: those of other libraries, and those of annotated calls where a processor of the
/// program's is to see them.
#[derive(Clone, Debug)]
pub(crate) struct SamplerOfSdk(Box<dyn ShouldSample>);

impl SamplerOfSdk {
    pub(crate) fn new(sampling: &Sampling) -> Self {
        Self(match sampling {
            Sampling::BuiltIn(sampler) => Box::new(Sampler::from(*sampler)),
            Sampling::Own(sampler) => sampler.clone(),
        })
    }
}

impl ShouldSample for SamplerOfSdk {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let nobody = Context::new();
        let parent = parent.unwrap_or(&nobody);
        // Taken before the sampler is asked, which may make spans itself.
        let thinning = THINNING.try_with(RefCell::take).ok().flatten();
        if step::is_left_out(parent) {
            return dropped(parent);
        }
        let said = ask(&*self.0, parent, trace_id, name, kind, attributes, links);
        let Some(thinning) = thinning.filter(|_| said.decision == SamplingDecision::RecordAndSample) else {
            return said;
        };
        let verdict = thinning.thin(Verdict::plain(true, said.trace_state.clone()), trace_id);
        SamplingResult {
            decision: if verdict.is_recorded { said.decision } else { SamplingDecision::Drop },
            attributes: said.attributes,
            trace_state: verdict.state,
        }
    }
}
