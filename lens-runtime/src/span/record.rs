//! What is known of a call that is open?
//!
//! A record is written in place while the call lasts. Its memory is used again: in the long run no call allocates any.

use std::time::Instant;

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SpanLimits;

use super::Told;
use super::attributes::Attributes;
use super::ended::{End, Extras, Facts, Fate, with_ours};
use super::entry::CountsAs;
use crate::groups;
use crate::metrics::ModelCall;
use crate::outcome::Outcome;
use crate::pipeline::{self, Pipeline, Whose};
use crate::sampling::{OwnedKey, Share};
use crate::semconv;

/// What is known of an open call.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub(crate) struct Record {
    pub(super) facts: Facts,
    pub(super) attributes: Attributes,
    pub(super) extras: Option<Box<Extras>>,
    // What was asked for, before it began.
    pub(super) whose: Whose,
    pub(super) wants_span: bool,
    pub(super) wants_metrics: bool,
    pub(super) share: Share,
    pub(super) sample_key: Option<Box<OwnedKey>>,
    /// The number of the step that begins with it.
    pub(super) begins: Option<u64>,
    pub(super) counts_as: CountsAs,
    pub(super) elsewhere: Option<Box<SpanContext>>,
    /// Whether that is a call that was left out.
    pub(super) is_within_nothing: bool,
    // What it is about while it is open.
    /// The shard of the table that it is put into.
    pub(super) home: u8,
    /// Tokens that were counted from within.
    pub(super) said: Option<Box<ModelCall>>,
    pub(super) is_announced: bool,
    /// The context with its span, if that is the SDK's.
    pub(super) of_sdk: Option<Context>,
}

impl Record {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            facts: Facts {
                trace: TraceId::INVALID,
                id: SpanId::INVALID,
                parent: SpanId::INVALID,
                parent_is_remote: false,
                flags: TraceFlags::NOT_SAMPLED,
                fate: Fate::None,
                called: "",
                group: &groups::Job,
                bucket: None,
                step: None,
                began: Instant::now(),
                end: End::Open,
                outcome: None,
                hides_error: false,
            },
            attributes: Attributes::default(),
            extras: None,
            whose: Whose::Nobody,
            wants_span: false,
            wants_metrics: false,
            share: Share::ALL,
            sample_key: None,
            begins: None,
            counts_as: CountsAs::ItsGroup,
            elsewhere: None,
            is_within_nothing: false,
            home: 0,
            said: None,
            is_announced: false,
            of_sdk: None,
        })
    }

    /// Empty again, with the memory that it has. What is set anew for each call is not cleared.
    #[inline]
    pub(super) fn clear(&mut self) {
        if self.attributes.bytes() > 0 {
            self.attributes.clear();
        }
        self.facts.bucket = None;
        self.facts.step = None;
        self.facts.end = End::Open;
        self.facts.outcome = None;
        self.facts.hides_error = false;
        self.extras = None;
        self.whose = Whose::Nobody;
        self.sample_key = None;
        self.begins = None;
        self.counts_as = CountsAs::ItsGroup;
        self.elsewhere = None;
        self.is_within_nothing = false;
        self.said = None;
        self.is_announced = false;
        self.of_sdk = None;
    }

    pub(super) fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    fn model_call(&self) -> Option<&ModelCall> {
        self.extras.as_ref().and_then(|extras| extras.model_call.as_deref())
    }

    /// Its span, as others see it.
    pub(super) fn span(&self) -> SpanContext {
        let state = self.extras.as_ref().map_or(TraceState::NONE, |extras| extras.state.clone());
        self.facts.span(state)
    }

    pub(super) fn set_state(&mut self, state: TraceState) {
        if state != TraceState::NONE {
            self.extras().state = state;
        }
    }

    pub(super) fn kind(&self) -> SpanKind {
        self.extras.as_ref().and_then(|extras| extras.kind.clone()).unwrap_or(SpanKind::Internal)
    }

    pub(super) fn name(&self) -> &str {
        let renamed = self.extras.as_ref().and_then(|extras| extras.renamed.as_deref());
        renamed.unwrap_or(self.facts.called)
    }

    pub(super) fn is_recording(&self) -> bool {
        self.facts.fate == Fate::Kept && self.facts.end == End::Open
    }

    /// Whether there is a span of it, ours or the SDK's, that is not left out.
    pub(super) fn is_span(&self) -> bool {
        self.facts.fate == Fate::Kept || self.of_sdk.is_some()
    }

    /// Whether nobody is told of it.
    pub(super) fn goes_nowhere(&self) -> bool {
        self.facts.fate == Fate::None
    }

    /// Whether there is more to do when it has ended than to deliver it.
    pub(super) fn wants_more_at_its_end(&self) -> bool {
        self.wants_metrics || self.said.is_some() || self.of_sdk.is_some()
    }

    /// Takes the measurements of the call.
    pub(super) fn measure(&self, outcome: Outcome, now: Instant) {
        if !self.wants_metrics {
            return;
        }
        let took = self.facts.took(now);
        let record = |pipeline: &Pipeline| {
            if let Some(instruments) = &pipeline.instruments {
                let Facts { called, group, .. } = self.facts;
                instruments.record(called, group.name(), outcome, took, self.model_call());
            }
        };
        match &self.whose {
            Whose::Nobody => {}
            Whose::Test(pipeline) => record(pipeline),
            // A call that began with a telemetry which has ended is not the next one's.
            Whose::Process(live) => {
                if let Some(pipeline) = pipeline::active().as_ref().filter(|active| live.is(active)) {
                    record(pipeline);
                }
            }
        }
    }

    /// Takes over what more is known of the model.
    pub(super) fn add(&mut self, call: Option<Box<ModelCall>>) {
        if let Some(call) = call {
            match &mut self.extras().model_call {
                Some(own) => own.add(*call),
                own @ None => *own = Some(call),
            }
        }
    }

    /// Takes over the tokens that were counted from within.
    pub(super) fn hear(&mut self) {
        let said = self.said.take();
        self.add(said);
    }

    /// Ends its span, if that is the SDK's.
    pub(super) fn end_of_sdk(&mut self) {
        let Some(context) = self.of_sdk.take() else { return };
        let extras = self.extras.as_deref();
        let span = context.span();
        if let Some(reason) = extras.and_then(|extras| extras.truncated) {
            span.add_event(semconv::TRUNCATED, vec![KeyValue::new(semconv::TRUNCATED_REASON, reason)]);
        }
        span.set_attributes(self.facts.own_at_last(extras));
        let status = extras.map(|extras| extras.status.clone()).unwrap_or_default();
        span.set_status(self.facts.status(status));
        span.end_with_timestamp(self.facts.ended_at(self.facts.started_at(extras)));
    }

    /// The attributes so far, for the SDK or a sampler of the program's.
    pub(super) fn attributes_so_far(&self) -> Vec<KeyValue> {
        with_ours(&self.facts, self.model_call(), self.attributes.iter())
    }

    /// How the call ended, of which `told` is said.
    pub(super) fn close(&mut self, outcome: Outcome, told: Told, end: End) {
        if self.facts.end == End::Open {
            self.facts.end = end;
        }
        self.facts.outcome = Some(outcome);
        match told {
            Told::Type => {}
            Told::Nothing => self.facts.hides_error = matches!(outcome, Outcome::Error(_)),
            Told::Text(text) => {
                // What the program says of its span comes before what its error says.
                let is_told = self.extras.as_ref().is_some_and(|extras| extras.status != Status::Unset);
                if matches!(outcome, Outcome::Error(_)) && !is_told {
                    self.set_status(Status::error(text));
                }
            }
        }
    }

    pub(super) fn set_status(&mut self, status: Status) {
        let own = &mut self.extras().status;
        // What the program called well stays so; else the last word counts, but not one that says nothing.
        if *own != Status::Ok && status != Status::Unset {
            *own = status;
        }
    }

    pub(super) fn add_event(&mut self, mut event: Event, limits: &SpanLimits) {
        let events = &mut self.extras().events;
        match events.events.len() < limits.max_events_per_span as usize {
            false => events.dropped_count += 1,
            true => {
                event.dropped_attributes_count += cut(&mut event.attributes, limits.max_attributes_per_event);
                events.events.push(event);
            }
        }
    }

    pub(super) fn add_link(&mut self, mut link: Link, limits: &SpanLimits) {
        let links = &mut self.extras().links;
        match links.links.len() < limits.max_links_per_span as usize {
            false => links.dropped_count += 1,
            true => {
                link.dropped_attributes_count += cut(&mut link.attributes, limits.max_attributes_per_link);
                links.links.push(link);
            }
        }
    }

    /// Drops what is too much of what was said before it began.
    #[inline]
    pub(super) fn limit(&mut self, limits: &SpanLimits) {
        self.attributes.limit(limits.max_attributes_per_span);
        if let Some(extras) = &mut self.extras {
            let (links, most) = (&mut extras.links, limits.max_links_per_span as usize);
            let too_many = links.links.len().saturating_sub(most);
            links.dropped_count += u32::try_from(too_many).unwrap_or(u32::MAX);
            links.links.truncate(most);
        }
    }
}

/// Sets an attribute of a span of the SDK's. Its processors are the program's, so that no lock must be held.
pub(super) fn set_attribute_of_sdk(context: &Context, attribute: KeyValue) {
    context.span().set_attribute(attribute);
}

/// Drops what is too much, and says how many that were.
fn cut(attributes: &mut Vec<KeyValue>, limit: u32) -> u32 {
    let too_many = attributes.len().saturating_sub(limit as usize);
    attributes.truncate(limit as usize);
    u32::try_from(too_many).unwrap_or(u32::MAX)
}
