//! Can this function be served with these arguments, and with what plan?
//!
//! One function per rule, the rule in English above it. Every mistake is reported at once.

use proc_macro2::{Ident, TokenStream};
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, GenericArgument, Pat, PathArguments, ReturnType, Signature, Token};
use syn::{Type, TypeParamBound, Visibility, braced};

use crate::args::{self, Args};
use crate::errors::Errors;

/// All that the expansion needs.
pub(crate) struct Plan {
    pub(crate) args: Args,
    pub(crate) function: Function,
}

/// An annotated function. The body stays tokens: we never look into it.
pub(crate) struct Function {
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
    match (args, function) {
        (Some(args), Some(function)) if errors.is_empty() => Ok(Plan { args, function }),
        _ => Err(errors),
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
    // `#![…]` may only stand at the top of the function's own block; above the function it means
    // the same.
    for mut inner in content.call(Attribute::parse_inner)? {
        inner.style = syn::AttrStyle::Outer;
        attributes.push(inner);
    }
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
    let verdicts = [
        no_const(signature),
        no_variadic(signature),
        no_poll(signature),
        returns(signature),
        no_future_returned(signature),
        no_track_caller(&function.attributes),
    ];
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

/// A function that never returns has no outcome.
fn returns(signature: &Signature) -> Option<syn::Error> {
    match &signature.output {
        ReturnType::Type(_, ty) if matches!(**ty, Type::Never(_)) => Some(syn::Error::new(
            ty.span(),
            "a function that never returns has no outcome to record; annotate what it calls in its loop",
        )),
        _ => None,
    }
}

/// A function that hands out a future or a stream is done before its work begins: its duration
/// would be a lie close to zero.
fn no_future_returned(signature: &Signature) -> Option<syn::Error> {
    let ReturnType::Type(_, ty) = &signature.output else {
        return None;
    };
    let kind = lazy_kind(ty)?;
    let way_out = match (kind, signature.asyncness.is_some()) {
        ("stream", _) => "annotate the function that consumes the stream",
        (_, true) => "await it in here, or annotate the function that awaits it",
        (_, false) => {
            "make it an `async fn` (with `#[async_trait]`: put `#[rl_span]` on an `async fn` that the method calls)"
        }
    };
    Some(syn::Error::new(
        ty.span(),
        format!(
            "this function returns a {kind} before its work is done, so its span would measure nothing; {way_out}"
        ),
    ))
}

/// `#[track_caller]` does not reach the body, which moves into a closure.
fn no_track_caller(attributes: &[Attribute]) -> Option<syn::Error> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("track_caller"))?;
    let text = "a recorded function cannot be `#[track_caller]`; annotate a function that it calls";
    Some(syn::Error::new(attribute.span(), text))
}

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
    match ty {
        Type::ImplTrait(ty) => of_bounds(&ty.bounds),
        Type::TraitObject(ty) => of_bounds(&ty.bounds),
        Type::Paren(ty) => lazy_kind(&ty.elem),
        Type::Group(ty) => lazy_kind(&ty.elem),
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
    match ty {
        Type::Path(ty) => ty.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

impl Function {
    /// The parameters that are handed on to the body.
    pub(crate) fn named_parameters(&self) -> impl Iterator<Item = &syn::PatIdent> {
        self.signature.inputs.iter().filter_map(plain_name)
    }
}

/// The name of a parameter that is nothing but a name, and so can be handed on to the body as it is.
pub(crate) fn plain_name(parameter: &FnArg) -> Option<&syn::PatIdent> {
    match parameter {
        // A parameter under `#[cfg]` may not exist, and a list of names cannot say "perhaps".
        FnArg::Typed(parameter) if parameter.attrs.is_empty() => match &*parameter.pat {
            Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Some(name),
            _ => None,
        },
        _ => None,
    }
}
