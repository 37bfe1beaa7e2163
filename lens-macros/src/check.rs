//! Can this function be served with these arguments, and with what plan?
//!
//! One function per rule, the rule in English above it. Every mistake is reported at once.

use proc_macro2::{Ident, TokenStream};
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, GenericArgument, PathArguments, ReturnType, Signature, Token};
use syn::{Type, TypeParamBound, Visibility, braced, parse_quote};

use crate::args::{self, Args, Value};
use crate::errors::Errors;

/// All that the expansion needs.
pub(crate) struct Plan {
    pub(crate) args: Args,
    pub(crate) function: Function,
    pub(crate) form: Form,
}

/// What the function becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The body runs in a closure, or in a future, and its value is looked at.
    Value,
    /// The body stays where it is, and a guard finds out whether it panicked: for what cannot stand in a
    /// closure.
    Guard,
    /// The function returns a future, and the call lasts until that is done.
    Future(Returned),
    /// The function returns a stream, and the call lasts until that is at its end, or dropped.
    Stream(Returned),
}

/// How a future or a stream is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returned {
    /// As `impl Future`.
    Opaque,
    /// As `Pin<Box<dyn Future>>`, or by an alias of the `futures` crate.
    Boxed,
}

/// An annotated function. The body stays tokens: we never look into it.
pub(crate) struct Function {
    /// Those above it, and those at the top of its block.
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) defaultness: Option<Token![default]>,
    pub(crate) signature: Signature,
    /// The braces, with the user's spans.
    pub(crate) brace: syn::token::Brace,
    /// What stands between the braces, without inner attributes.
    pub(crate) body: TokenStream,
}

/// Reads and checks an annotation and its item.
pub(crate) fn plan(args: TokenStream, item: TokenStream) -> Result<Plan, Errors> {
    let mut errors = Errors::default();
    let args = args::parse(args, &mut errors);
    let function = match function.parse2(item) {
        Ok(function) => {
            check_function(&function, &mut errors);
            Some(function)
        }
        Err(error) => {
            errors.push(error);
            None
        }
    };
    if let Some(args) = &args {
        check_attribute_keys(args, &mut errors);
    }
    let form = function.as_ref().map(form);
    match (&args, &form) {
        (Some(args), Some((Form::Guard, Some(reason)))) => no_result_in_a_guard(args, reason, &mut errors),
        (Some(args), Some((Form::Stream(_), _))) => no_result_of_a_stream(args, &mut errors),
        _ => {}
    }
    match (args, function, form) {
        (Some(args), Some(function), Some((form, _))) if errors.is_empty() => {
            Ok(Plan { args, function, form })
        }
        _ => Err(errors),
    }
}

/// The form that serves a function; for a guard, also why.
fn form(function: &Function) -> (Form, Option<&'static str>) {
    let signature = &function.signature;
    let ty = match &signature.output {
        ReturnType::Type(_, ty) if signature.asyncness.is_none() => Some(peeled(ty)),
        _ => None,
    };
    let is_track_caller =
        function.attributes.iter().any(|attribute| attribute.path().is_ident("track_caller"));
    match ty.map(|ty| (ty, lazy_kind(ty))) {
        Some((ty, Some(kind))) => {
            let returned = if matches!(ty, Type::ImplTrait(_)) { Returned::Opaque } else { Returned::Boxed };
            let form = if kind == "stream" { Form::Stream(returned) } else { Form::Future(returned) };
            (form, None)
        }
        Some((Type::Never(_), None)) => (Form::Guard, Some("never returns")),
        Some((Type::ImplTrait(_), None)) => (Form::Guard, Some("returns an `impl Trait`")),
        _ if is_track_caller => (Form::Guard, Some("is `#[track_caller]`")),
        _ => (Form::Value, None),
    }
}

/// A type without the parentheses around it, and without the invisible ones of a macro's `$ty:ty`.
pub(crate) fn peeled(ty: &Type) -> &Type {
    match ty {
        Type::Paren(ty) => peeled(&ty.elem),
        Type::Group(ty) => peeled(&ty.elem),
        _ => ty,
    }
}

/// A stream has many items and an attribute one value; of items only tokens are counted.
fn no_result_of_a_stream(args: &Args, errors: &mut Errors) {
    let attributes = args.attributes.iter().map(|attribute| &attribute.value);
    for value in attributes.chain(&args.latencies) {
        if let Value::OfResult(closure) = value {
            let text = "a stream has many items; give a value that is known when the call begins, or use \
                        `lens_runtime::set` in the stream";
            errors.push(syn::Error::new(closure.span(), text));
        }
    }
}

/// A guard does not see the result.
fn no_result_in_a_guard(args: &Args, reason: &str, errors: &mut Errors) {
    let closures = args.values().filter_map(|value| match value {
        Value::OfResult(closure) => Some(closure.span()),
        Value::AtEntry(_) => None,
    });
    for span in closures.chain(args.err.as_ref().map(|(word, _)| word.span())) {
        errors.push(syn::Error::new(
            span,
            format!(
                "a function that {reason} cannot show its result; give a value that is known when the call begins, \
                 or annotate a function that it calls"
            ),
        ));
    }
}

/// Reads the item, or says what to annotate instead of it.
fn function(input: ParseStream<'_>) -> syn::Result<Function> {
    let mut attributes = input.call(Attribute::parse_outer)?;
    let visibility = input.parse()?;
    let defaultness = match input.peek(Token![default]) && !input.peek2(Token![=]) {
        true => Some(input.parse()?),
        false => None,
    };
    for (keyword, instead) in NOT_FUNCTIONS {
        if input.cursor().ident().is_some_and(|(word, _)| word == keyword) {
            return Err(input.error(format!("`#[rl_span]` records calls of a function; {instead}")));
        }
    }
    let signature = Signature::parse(input).map_err(|error| {
        syn::Error::new(
            error.span(),
            format!("{error}; `#[rl_span]` records calls of a function and goes above a `fn`"),
        )
    })?;
    if input.peek(Token![;]) {
        let text = "this method has no body to record; annotate it in the `impl` of each type";
        return Err(syn::Error::new(signature.span(), text));
    }
    let content;
    let brace = braced!(content in input);
    attributes.extend(content.call(Attribute::parse_inner)?);
    Ok(Function { attributes, visibility, defaultness, signature, brace, body: content.parse()? })
}

/// Items that people annotate by mistake, with the way out.
const NOT_FUNCTIONS: &[(&str, &str)] = &[
    ("impl", "annotate each method that you want to see, not the `impl` block"),
    ("trait", "annotate the methods of each `impl`, or default methods, not the `trait`"),
    ("mod", "annotate the functions in it, not the module"),
    ("struct", "annotate the methods that use it"),
    ("enum", "annotate the methods that use it"),
    ("static", "annotate the function that uses it"),
    ("type", "annotate the function that uses it"),
    ("use", "annotate the function where it is defined"),
];

fn check_function(function: &Function, errors: &mut Errors) {
    let signature = &function.signature;
    let verdicts =
        [no_const(signature), no_variadic(signature), no_poll(signature), no_hidden_future(signature)];
    for error in verdicts.into_iter().flatten() {
        errors.push(error);
    }
}

/// A `const fn` runs in the compiler, where there is no clock and nobody to tell.
fn no_const(signature: &Signature) -> Option<syn::Error> {
    let token = signature.constness.as_ref()?;
    let text = "a `const fn` cannot be recorded; annotate the function that calls it at run time";
    Some(syn::Error::new(token.span(), text))
}

/// A variadic function is defined for C and cannot hand its arguments on.
fn no_variadic(signature: &Signature) -> Option<syn::Error> {
    let token = signature.variadic.as_ref()?;
    let text = "a variadic function cannot be recorded; annotate the function that it calls";
    Some(syn::Error::new(token.span(), text))
}

/// `Future::poll` would give one span per poll.
fn no_poll(signature: &Signature) -> Option<syn::Error> {
    let returns_poll = match &signature.output {
        ReturnType::Type(_, ty) => last_segment(ty).is_some_and(|name| name == "Poll"),
        ReturnType::Default => false,
    };
    let text = "this would record one span for each poll; annotate the `async fn` that awaits the future";
    (signature.ident == "poll" && signature.receiver().is_some() && returns_poll)
        .then(|| syn::Error::new(signature.ident.span(), text))
}

/// A function that hands out a future or a stream is done before its work begins. One by itself is followed
/// until it is done; one that is part of something else cannot be: the duration would be a lie close to
/// zero.
fn no_hidden_future(signature: &Signature) -> Option<syn::Error> {
    let ReturnType::Type(_, ty) = &signature.output else {
        return None;
    };
    let kind = lazy_kind(ty)?;
    let way_out = match (kind, signature.asyncness.is_some()) {
        (_, false) if is_followed(ty) => return None,
        ("stream", true) => {
            "make it a plain `fn` that returns `impl Stream`, or annotate the function that consumes the stream"
        }
        ("stream", false) => "return `impl Stream` or `Pin<Box<dyn Stream>>` and nothing beside it",
        (_, true) => "await it in here, or annotate the function that awaits it",
        (_, false) => {
            "return `impl Future` or `Pin<Box<dyn Future>>` and nothing beside it, or make it an `async fn`"
        }
    };
    Some(syn::Error::new(
        ty.span(),
        format!(
            "this function returns a {kind} before its work is done, so its span would measure nothing; {way_out}"
        ),
    ))
}

/// Whether a type is a future or a stream by itself, of a kind that can be wrapped.
fn is_followed(ty: &Type) -> bool {
    match peeled(ty) {
        Type::ImplTrait(ty) => !ty.bounds.iter().any(|bound| match bound {
            TypeParamBound::Trait(bound) => {
                bound.path.segments.last().is_some_and(|last| last.ident == "IntoFuture")
            }
            _ => false,
        }),
        Type::Path(_) => last_segment(ty).is_some_and(|name| ALIASES.iter().any(|known| name == known)),
        _ => false,
    }
}

/// Boxes that are wrapped into another one of their kind.
const ALIASES: &[&str] = &["Pin", "BoxFuture", "LocalBoxFuture", "BoxStream", "LocalBoxStream"];

/// A key names one value: of two with the same key a backend keeps either.
fn check_attribute_keys(args: &Args, errors: &mut Errors) {
    for (index, attribute) in args.attributes.iter().enumerate() {
        let spelling = attribute.key.spelling();
        if args.attributes[..index].iter().any(|earlier| earlier.key.spelling() == spelling) {
            let text = format!("attribute `{spelling}` is given twice");
            errors.push(syn::Error::new(attribute.key.span(), text));
        }
    }
}

/// "future" or "stream" if the type says so where it is written. What hides behind an alias is not
/// seen; the common aliases of the `futures` crate are known by name.
fn lazy_kind(ty: &Type) -> Option<&'static str> {
    let of_name = |name: &str| match name {
        "Future" | "IntoFuture" | "BoxFuture" | "LocalBoxFuture" => Some("future"),
        "Stream" | "BoxStream" | "LocalBoxStream" => Some("stream"),
        _ => None,
    };
    let of_bounds = |bounds: &syn::punctuated::Punctuated<TypeParamBound, Token![+]>| {
        bounds.iter().find_map(|bound| match bound {
            TypeParamBound::Trait(bound) => of_name(&bound.path.segments.last()?.ident.to_string()),
            _ => None,
        })
    };
    match peeled(ty) {
        Type::ImplTrait(ty) => of_bounds(&ty.bounds),
        Type::TraitObject(ty) => of_bounds(&ty.bounds),
        Type::Tuple(ty) => ty.elems.iter().find_map(lazy_kind),
        Type::Path(ty) => {
            let last = ty.path.segments.last()?;
            let inside = || match &last.arguments {
                PathArguments::AngleBracketed(arguments) if last.ident == "Pin" || last.ident == "Box" => {
                    arguments.args.iter().find_map(|argument| match argument {
                        GenericArgument::Type(ty) => lazy_kind(ty),
                        _ => None,
                    })
                }
                _ => None,
            };
            of_name(&last.ident.to_string()).or_else(inside)
        }
        _ => None,
    }
}

fn last_segment(ty: &Type) -> Option<&Ident> {
    match peeled(ty) {
        Type::Path(ty) => ty.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

impl Function {
    /// The type of its result, as written.
    pub(crate) fn result(&self) -> Type {
        match &self.signature.output {
            ReturnType::Default => parse_quote!(()),
            ReturnType::Type(_, ty) => (**ty).clone(),
        }
    }
}
