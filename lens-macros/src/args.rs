//! What did the user write between the parentheses of `#[rl_span(…)]`?
//!
//! Tokens become arguments; every mistake is collected on its token. What the arguments mean
//! together with the function is not decided here.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Expr, ExprClosure, LitStr, Path, Token, parenthesized};

use crate::errors::{Errors, did_you_mean};

/// Each argument with the example that errors show.
const ARGUMENTS: &[(&str, &str)] = &[
    ("group", "group = Generation"),
    ("name", "name = \"rl.vllm.generate\""),
    ("attributes", "attributes(rl.engine.index = index)"),
    ("tokens", "tokens(input = prompts.lengths(), output = |out| out.lengths())"),
    ("model", "model = self.model.as_str()"),
    ("provider", "provider = \"vllm\""),
    ("operation", "operation = \"chat\""),
    ("latencies", "latencies = |out| out.durations()"),
    ("step", "step = iteration"),
    ("err", "err = message"),
    ("kind", "kind = client"),
    ("bucket", "bucket = Idle"),
    ("umbrella", "umbrella"),
    ("key", "key = request.id"),
    ("parent", "parent = context"),
    ("links", "links = contexts"),
    ("crate", "crate = my_crate::lens_runtime"),
];

/// The arguments of one annotation.
pub(crate) struct Args {
    pub(crate) group: Path,
    pub(crate) name: Expr,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) tokens: Tokens,
    pub(crate) latencies: Option<Value>,
    pub(crate) model: Option<Expr>,
    pub(crate) provider: Option<Expr>,
    pub(crate) operation: Option<Expr>,
    pub(crate) step: Option<Expr>,
    pub(crate) err: Option<(Ident, ErrorPolicy)>,
    pub(crate) kind: Option<Ident>,
    pub(crate) bucket: Option<Ident>,
    pub(crate) umbrella: Option<Ident>,
    pub(crate) sample_key: Option<Expr>,
    pub(crate) parent: Option<Expr>,
    pub(crate) links: Option<Expr>,
    /// Where the runtime is, if not at `::lens_runtime`.
    pub(crate) runtime: Option<Path>,
}

/// What is said of tokens.
#[derive(Default)]
pub(crate) struct Tokens {
    pub(crate) input: Option<Value>,
    pub(crate) output: Option<Value>,
    /// Both sides at once.
    pub(crate) usage: Option<Value>,
}

/// How much of an error is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorPolicy {
    Off,
    Status,
    Message,
    Chain,
}

/// One `key = value` of `attributes(…)`.
pub(crate) struct Attribute {
    pub(crate) key: Key,
    pub(crate) value: Value,
}

/// The key of a span attribute.
pub(crate) enum Key {
    /// Dotted words or a string, by the words' own tokens.
    Words(LitStr),
    /// The path of a constant.
    Constant(Path),
}

/// A value and the moment at which it is evaluated.
pub(crate) enum Value {
    /// From the parameters, when the call begins.
    AtEntry(Expr),
    /// From a reference to the successful value, when the call is done.
    OfResult(ExprClosure),
}

/// Reads the arguments. Returns `None` only after at least one error was pushed.
pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Option<Args> {
    let mut draft = Draft::default();
    let outcome = (|input: ParseStream<'_>| {
        each_after_comma(input, errors, |input, errors| argument(input, &mut draft, errors));
        Ok(())
    })
    .parse2(tokens);
    if let Err(error) = outcome {
        errors.push(error);
    }
    draft.finish(errors)
}

/// The arguments seen so far, each at most once.
#[derive(Default)]
struct Draft {
    group: Option<Path>,
    name: Option<Expr>,
    attributes: Option<Vec<Attribute>>,
    tokens: Option<Tokens>,
    latencies: Option<Value>,
    model: Option<Expr>,
    provider: Option<Expr>,
    operation: Option<Expr>,
    step: Option<Expr>,
    err: Option<(Ident, ErrorPolicy)>,
    kind: Option<Ident>,
    bucket: Option<Ident>,
    umbrella: Option<Ident>,
    sample_key: Option<Expr>,
    parent: Option<Expr>,
    links: Option<Expr>,
    runtime: Option<Path>,
    /// Keys that were there but broken: they are not "missing" as well.
    broken: Vec<String>,
}

impl Draft {
    fn finish(self, errors: &mut Errors) -> Option<Args> {
        let missing: Vec<&str> = [("group", self.group.is_none()), ("name", self.name.is_none())]
            .into_iter()
            .filter(|(key, absent)| *absent && !self.broken.iter().any(|broken| broken == key))
            .map(|(key, _)| key)
            .collect();
        if !missing.is_empty() {
            errors.push(syn::Error::new(
                Span::call_site(),
                format!(
                    "missing `{}`; expected `#[rl_span(group = Generation, name = \"rl.vllm.generate\", …)]`",
                    missing.join("` and `")
                ),
            ));
        }
        if let (Some(_), Some(umbrella)) = (&self.bucket, &self.umbrella) {
            errors.push(syn::Error::new(
                umbrella.span(),
                "an umbrella has no bucket of its own; give `bucket` or `umbrella`, not both",
            ));
        }
        Some(Args {
            group: self.group?,
            name: self.name?,
            attributes: self.attributes.unwrap_or_default(),
            tokens: self.tokens.unwrap_or_default(),
            latencies: self.latencies,
            model: self.model,
            provider: self.provider,
            operation: self.operation,
            step: self.step,
            err: self.err,
            kind: self.kind,
            bucket: self.bucket,
            umbrella: self.umbrella,
            sample_key: self.sample_key,
            parent: self.parent,
            links: self.links,
            runtime: self.runtime,
        })
    }
}

/// Reads one argument, at its key.
fn argument(input: ParseStream<'_>, draft: &mut Draft, errors: &mut Errors) -> syn::Result<()> {
    let key = word(input, "an argument such as `group = Generation`")?;
    let text = key.unraw().to_string();
    let outcome = match text.as_str() {
        "group" => assigned(input, &key)
            .and_then(|()| group(input))
            .and_then(|path| set(&mut draft.group, &key, path)),
        "name" => {
            assigned(input, &key).and_then(|()| name(input)).and_then(|name| set(&mut draft.name, &key, name))
        }
        "attributes" => {
            listed(input, &key, errors, attribute).and_then(|list| set(&mut draft.attributes, &key, list))
        }
        "tokens" => tokens(input, &key, errors).and_then(|tokens| set(&mut draft.tokens, &key, tokens)),
        "model" => expression(input, &key, &mut draft.model),
        "provider" => expression(input, &key, &mut draft.provider),
        "operation" => expression(input, &key, &mut draft.operation),
        "latencies" => assigned(input, &key)
            .and_then(|()| value(input))
            .and_then(|value| set(&mut draft.latencies, &key, value)),
        "step" => expression(input, &key, &mut draft.step),
        "err" => assigned(input, &key)
            .and_then(|()| choice(input, "error policy", ERROR_POLICIES))
            .and_then(|policy| set(&mut draft.err, &key, policy)),
        "kind" => assigned(input, &key)
            .and_then(|()| choice(input, "span kind", KINDS))
            .and_then(|(word, kind)| set(&mut draft.kind, &key, Ident::new(kind, word.span()))),
        "bucket" => assigned(input, &key)
            .and_then(|()| choice(input, "bucket", BUCKETS))
            .and_then(|(word, bucket)| set(&mut draft.bucket, &key, Ident::new(bucket, word.span()))),
        "umbrella" => set(&mut draft.umbrella, &key, key.clone()),
        "key" => expression(input, &key, &mut draft.sample_key),
        "parent" => expression(input, &key, &mut draft.parent),
        "links" => expression(input, &key, &mut draft.links),
        "crate" => assigned(input, &key)
            .and_then(|()| Path::parse_mod_style(input))
            .and_then(|path| set(&mut draft.runtime, &key, path)),
        _ => Err(unknown(&key, "argument", &names(ARGUMENTS))),
    };
    if outcome.is_err() {
        draft.broken.push(text);
    }
    outcome
}

fn expression(input: ParseStream<'_>, key: &Ident, slot: &mut Option<Expr>) -> syn::Result<()> {
    assigned(input, key)?;
    let value: Expr = input.parse()?;
    match &value {
        Expr::Closure(closure) => Err(syn::Error::new(
            closure.span(),
            format!("`{key}` is evaluated when the call begins; expected a value, found a closure"),
        )),
        _ => set(slot, key, value),
    }
}

/// Words that may be given, with what they mean.
type Choices<T> = &'static [(&'static str, T)];

const ERROR_POLICIES: Choices<ErrorPolicy> = &[
    ("off", ErrorPolicy::Off),
    ("status", ErrorPolicy::Status),
    ("message", ErrorPolicy::Message),
    ("chain", ErrorPolicy::Chain),
];

/// By the names of the variants of OpenTelemetry's `SpanKind`.
const KINDS: Choices<&str> = &[
    ("internal", "Internal"),
    ("server", "Server"),
    ("client", "Client"),
    ("producer", "Producer"),
    ("consumer", "Consumer"),
];

/// By the names of the variants of the runtime's `Bucket`.
const BUCKETS: Choices<&str> =
    &[("productive", "Productive"), ("overhead", "Overhead"), ("idle", "Idle"), ("wasted", "Wasted")];

/// One word out of a few, in any case.
fn choice<T: Copy>(input: ParseStream<'_>, what: &str, choices: Choices<T>) -> syn::Result<(Ident, T)> {
    let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
    let word = word(input, &format!("a {what}: `{}`", words.join("`, `")))?;
    let lower = word.to_string().to_lowercase();
    match choices.iter().find(|(known, _)| *known == lower) {
        Some((_, meaning)) => Ok((word, *meaning)),
        None => Err(unknown(&word, what, &words)),
    }
}

fn group(input: ParseStream<'_>) -> syn::Result<Path> {
    if input.peek(syn::Lit) {
        return Err(input.error(
            "expected a span group without quotes: `Generation`, or the path of your own, `crate::groups::TOOLS`",
        ));
    }
    input.call(Path::parse_mod_style)
}

fn name(input: ParseStream<'_>) -> syn::Result<Expr> {
    let expr: Expr = input.parse()?;
    let complaint = match &expr {
        Expr::Lit(lit) => match &lit.lit {
            syn::Lit::Str(text) if !text.value().trim().is_empty() => return Ok(expr),
            syn::Lit::Str(_) => "a span needs a name that is not empty, such as `\"rl.vllm.generate\"`",
            _ => "expected a span name of type `&'static str`, such as `\"rl.vllm.generate\"`",
        },
        Expr::Closure(_) => "expected a span name of type `&'static str`, found a closure",
        _ => return Ok(expr),
    };
    Err(syn::Error::new(expr.span(), complaint))
}

fn attribute(input: ParseStream<'_>) -> syn::Result<Attribute> {
    let key = attribute_key(input)?;
    if !input.peek(Token![=]) {
        let text = format!("`{}` has no value; expected `key = value`", key.spelling());
        return Err(syn::Error::new(key.span(), text));
    }
    input.parse::<Token![=]>()?;
    Ok(Attribute { key, value: value(input)? })
}

/// Dotted words, a string, or the path of a constant. A single word with an upper-case letter is a
/// constant, so that an imported `ITERATION` never becomes the key "ITERATION".
fn attribute_key(input: ParseStream<'_>) -> syn::Result<Key> {
    const EXPECTED: &str =
        "an attribute key: dotted words (`rl.engine.index`), a string, or the path of a constant";
    if input.peek(LitStr) {
        let text: LitStr = input.parse()?;
        return match text.value().trim().is_empty() {
            true => Err(syn::Error::new(text.span(), "an attribute needs a key that is not empty")),
            false => Ok(Key::Words(text)),
        };
    }
    if input.peek(Token![::]) || (input.peek(Ident::peek_any) && input.peek2(Token![::])) {
        return input.call(Path::parse_mod_style).map(Key::Constant);
    }
    let first = word(input, EXPECTED)?;
    if !input.peek(Token![.]) && has_upper_case(&first) {
        return Ok(Key::Constant(first.into()));
    }
    let mut words = vec![first];
    while input.peek(Token![.]) {
        input.parse::<Token![.]>()?;
        words.push(word(input, "a word after the dot of an attribute key")?);
    }
    if let Some(loud) = words.iter().find(|word| has_upper_case(word)) {
        return Err(syn::Error::new(
            loud.span(),
            "the words of an attribute key are lower case; write other keys as a string",
        ));
    }
    let text = words.iter().map(|word| word.unraw().to_string()).collect::<Vec<_>>().join(".");
    let span = words.iter().map(Ident::span).reduce(|all, one| all.join(one).unwrap_or(all));
    Ok(Key::Words(LitStr::new(&text, span.unwrap_or_else(Span::call_site))))
}

/// `tokens(input = …, output = …)`, or `tokens = …` for both sides at once.
fn tokens(input: ParseStream<'_>, key: &Ident, errors: &mut Errors) -> syn::Result<Tokens> {
    if input.peek(Token![=]) {
        assigned(input, key)?;
        return Ok(Tokens { usage: Some(value(input)?), ..Tokens::default() });
    }
    let sides = listed(input, key, errors, |input| {
        let side = word(input, "`input = …` or `output = …`")?;
        if !["input", "output"].contains(&side.to_string().as_str()) {
            return Err(unknown(&side, "side of `tokens`", &["input", "output"]));
        }
        assigned_as(input, "input = prompts.lengths()")?;
        Ok((side, value(input)?))
    })?;
    let mut tokens = Tokens::default();
    for (side, value) in sides {
        let slot = if side == "input" { &mut tokens.input } else { &mut tokens.output };
        if let Err(error) = set(slot, &side, value) {
            errors.push(error);
        }
    }
    Ok(tokens)
}

/// A value; a closure of one argument is one that is asked for later.
fn value(input: ParseStream<'_>) -> syn::Result<Value> {
    match input.parse()? {
        Expr::Closure(closure) if closure.inputs.len() == 1 => Ok(Value::OfResult(closure)),
        Expr::Closure(closure) => Err(syn::Error::new(
            closure.or1_token.span(),
            "expected a closure of one argument, a reference to the successful value: `|out| out.len()`",
        )),
        expr => Ok(Value::AtEntry(expr)),
    }
}

/// Reads `(item, item, …)`; a broken item is an error of its own and does not hide the next.
fn listed<T>(
    input: ParseStream<'_>,
    key: &Ident,
    errors: &mut Errors,
    mut item: impl FnMut(ParseStream<'_>) -> syn::Result<T>,
) -> syn::Result<Vec<T>> {
    if !input.peek(syn::token::Paren) {
        return Err(input.error(format!("expected `{}`", example(key))));
    }
    let content;
    parenthesized!(content in input);
    let mut items = Vec::new();
    each_after_comma(&content, errors, |input, _| item(input).map(|item| items.push(item)));
    Ok(items)
}

/// Calls `one` for each element of a comma-separated list; after a mistake it goes on behind the
/// next comma.
fn each_after_comma(
    input: ParseStream<'_>,
    errors: &mut Errors,
    mut one: impl FnMut(ParseStream<'_>, &mut Errors) -> syn::Result<()>,
) {
    while !input.is_empty() {
        let outcome = one(input, errors).and_then(|()| match input.is_empty() || input.peek(Token![,]) {
            true => Ok(()),
            false => Err(input.error("expected `,`")),
        });
        if let Err(error) = outcome {
            errors.push(error);
        }
        while !input.is_empty() {
            if input.parse::<Token![,]>().is_ok() {
                break;
            }
            // Any token tree may stand between a mistake and the next comma, so this cannot fail.
            let _skipped = input.parse::<TokenTree>();
        }
    }
}

fn word(input: ParseStream<'_>, expected: &str) -> syn::Result<Ident> {
    match input.peek(Ident::peek_any) {
        true => input.call(Ident::parse_any),
        false => Err(input.error(format!("expected {expected}"))),
    }
}

fn assigned(input: ParseStream<'_>, key: &Ident) -> syn::Result<()> {
    assigned_as(input, example(key))
}

fn assigned_as(input: ParseStream<'_>, example: &str) -> syn::Result<()> {
    match input.peek(Token![=]) && !input.peek(Token![==]) {
        true => input.parse::<Token![=]>().map(|_| ()),
        false => Err(input.error(format!("expected `{example}`"))),
    }
}

/// Fills a slot, once.
fn set<T>(slot: &mut Option<T>, key: &Ident, value: T) -> syn::Result<()> {
    match slot {
        Some(_) => Err(syn::Error::new(key.span(), format!("`{key}` is given twice"))),
        None => {
            *slot = Some(value);
            Ok(())
        }
    }
}

fn unknown(word: &Ident, kind: &str, known: &[&str]) -> syn::Error {
    syn::Error::new(
        word.span(),
        format!(
            "unknown {kind} `{word}`{}; expected one of `{}`",
            did_you_mean(&word.to_string(), known),
            known.join("`, `"),
        ),
    )
}

fn example(key: &Ident) -> &'static str {
    let key = key.unraw().to_string();
    ARGUMENTS.iter().find(|(name, _)| *name == key).map_or("", |(_, example)| example)
}

fn names(table: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

fn has_upper_case(word: &Ident) -> bool {
    word.to_string().contains(char::is_uppercase)
}

impl Args {
    /// The values, each evaluated at entry or of the result.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let Tokens { input, output, usage } = &self.tokens;
        let attributes = self.attributes.iter().map(|attribute| &attribute.value);
        attributes.chain(input).chain(output).chain(usage).chain(&self.latencies)
    }

    /// Whether a value that is evaluated at entry mentions this name.
    pub(crate) fn mentions(&self, name: &Ident) -> bool {
        let values = self.values().filter_map(|value| match value {
            Value::AtEntry(expr) => Some(expr),
            Value::OfResult(_) => None,
        });
        let others = [
            &self.model,
            &self.provider,
            &self.operation,
            &self.step,
            &self.sample_key,
            &self.parent,
            &self.links,
        ]
        .into_iter();
        values.chain(others.flatten()).chain([&self.name]).any(|expr| contains(expr.to_token_stream(), name))
    }
}

/// Whether a name stands somewhere among tokens.
pub(crate) fn contains(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => contains(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

impl Key {
    /// The key as the user wrote it, to find the same key twice.
    pub(crate) fn spelling(&self) -> String {
        match self {
            Key::Words(text) => text.value(),
            Key::Constant(path) => path.to_token_stream().to_string(),
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Key::Words(text) => text.span(),
            Key::Constant(path) => path.span(),
        }
    }
}
