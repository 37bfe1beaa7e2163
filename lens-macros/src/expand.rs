//! What does an annotated function become?
//!
//! ```text
//! Input:  #[rl_span(group = G, name = N, attributes(k = v, l = |out| w), tokens(input = i, output = |out| o))]
//!         fn f(a: A, mut b: B) -> R { body }
//!
//! Output: fn f(a: A, b: B) -> R {
//!             let mut call = match rt::enter(&G) {
//!                 Some(mut entry) => {
//!                     if entry.has_span() { entry.attribute("k", &v); }
//!                     entry.model_call().input_tokens(i);
//!                     entry.scope(N)
//!                 }
//!                 None => rt::Scope::OFF,
//!             };
//!             let arguments = (a, b);
//!             let out = rt::run(arguments, move |(a, mut b)| -> R { body });
//!             if let Some(open) = call.recorded() {
//!                 open.settle(rt::by_type(&out).lens_failure());
//!                 if let Some(ok) = rt::by_type(&out).lens_success() {
//!                     if open.has_span() { open.attribute("l", &rt::taken(ok, |out| w)); }
//!                     open.model_call().output_tokens(rt::taken(ok, |out| o));
//!                 }
//!             }
//!             out
//!         }
//! ```
//!
//! With `async fn`, the body is run by `let out = rt::traced(&mut call, async move { edge; body }).await;`
//! where the edge gives the body the return type to coerce to. Where a future is returned, what settles
//! the call goes along with it: `rt::followed(call, out, |open, out| { … })`; so it does with a stream,
//! `rt::streamed(…)`, for each item. And what cannot stand in a closure stays where it is:
//! `let _guard = match rt::enter(&G) { … entry.guard(N) … }; { body }`.
//!
//! clippy reads something else, see [`lint`].
//!
//! Methods are written here as methods, and called by their paths. Names of ours are invisible to the
//! user's tokens (mixed-site hygiene), and every path goes through the runtime's private module, so that
//! nothing in scope can stand in the way.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{AttrStyle, Attribute, Path, ReturnType, Token, Type, parse_quote};

use crate::args::{Args, ErrorPolicy, Key, Value};
use crate::check::{Form, Function, Plan, Returned, peeled};
use crate::lint;
use crate::parameters::Parameters;

pub(crate) fn expand(plan: &Plan) -> TokenStream {
    let Plan { args, function, form } = plan;
    let Function { attributes, visibility, defaultness, .. } = function;
    let call = call(args, function, *form);
    if let Some(bare) = lint::is_clippy().then(|| lint::bare(plan, &call)).flatten() {
        return bare;
    }
    let parameters = Parameters::of(args, function);
    let statements = match form {
        Form::Value => {
            let run = match function.signature.asyncness {
                None => run_sync(args, function, &parameters),
                Some(_) => run_async(args, function, &parameters),
            };
            if function.signature.asyncness.is_some() && never_returns(function) {
                quote_spanned! {Span::mixed_site()=> let mut call = #call; #run match out {} }
            } else {
                let settle = settle(args, function, *form, &quote_spanned! {Span::mixed_site()=> out });
                let settle = recorded(args, function, *form, &settle);
                quote_spanned! {Span::mixed_site()=> let mut call = #call; #run #settle out }
            }
        }
        Form::Future(returned) | Form::Stream(returned) => {
            let run = run_sync(args, function, &parameters);
            let follow = follow(args, function, *form, *returned);
            quote_spanned! {Span::mixed_site()=> let mut call = #call; #run #follow }
        }
        Form::Guard => {
            let body = body(function);
            quote_spanned! {Span::mixed_site()=> let _guard = #call; #body }
        }
    };
    let signature = parameters.outer_signature(function, *form);
    // An attribute at the top of the user's block means the same above the function, where it covers the
    // block of ours too.
    let attributes =
        attributes.iter().cloned().map(|attribute| Attribute { style: AttrStyle::Outer, ..attribute });
    // Braces of the user, so that an editor with an unfinished body still finds its way.
    let mut block = TokenStream::new();
    function.brace.surround(&mut block, |block| block.extend(statements));
    quote! { #(#attributes)* #visibility #defaultness #signature #block }
}

/// The call, begun if it is recorded.
fn call(args: &Args, function: &Function, form: Form) -> TokenStream {
    let rt = private(args, Span::mixed_site());
    let group = group(args);
    let name = &args.name;
    let holder = holder(function, form);
    let begin = match (form, function.signature.asyncness) {
        (Form::Guard, _) => "guard",
        (Form::Value, Some(_)) => "call",
        (Form::Value, None) => "scope",
        (Form::Future(_) | Form::Stream(_), _) => "lasting",
    };
    let begin = Ident::new(begin, Span::mixed_site());
    let mut entry = entry(args);
    let mut name = name.to_token_stream();
    // What would leave the function is an error, as rustc tells it of a closure: an annotation does not
    // change what a function does.
    if may_leave(entry.clone()) {
        entry = quote_spanned! {Span::mixed_site()=> (|| { #entry })(); };
    }
    if may_leave(name.clone()) {
        name = quote_spanned! {Span::mixed_site()=> (|| #name)() };
    }
    quote_spanned! {Span::mixed_site()=>
        match #rt::enter(#group) {
            #rt::Some(mut entry) => { #entry #rt::Entry::#begin(entry, #name) }
            #rt::None => #rt::#holder::OFF,
        }
    }
}

/// What holds the call.
fn holder(function: &Function, form: Form) -> Ident {
    let is_async = form == Form::Value && function.signature.asyncness.is_some();
    Ident::new(if is_async { "Call" } else { "Scope" }, Span::mixed_site())
}

/// The statements that settle a call, if it is recorded.
pub(crate) fn recorded(args: &Args, function: &Function, form: Form, settle: &TokenStream) -> TokenStream {
    let rt = private(args, Span::mixed_site());
    let holder = holder(function, form);
    quote_spanned! {Span::mixed_site()=>
        if let #rt::Some(open) = #rt::#holder::recorded(&mut call) { #settle }
    }
}

/// Whether an expression may do what leaves the function it stands in, by itself or out of a macro.
fn may_leave(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => may_leave(group.stream()),
        TokenTree::Ident(word) => word == "return" || word == "await" || word == "yield",
        TokenTree::Punct(sign) => matches!(sign.as_char(), '?' | '!'),
        TokenTree::Literal(_) => false,
    })
}

/// A bare name that is written as a type is one of the built-in groups, and one that is written as a static, like
/// any path, is what it is where the user stands. rustc reports a name that does not exist, with its own
/// suggestion.
fn group(args: &Args) -> TokenStream {
    let group = &args.group;
    let at = at(group);
    match group.get_ident() {
        Some(name) if name.to_string().contains(char::is_lowercase) => {
            let runtime = runtime(args, at);
            quote_spanned! {at=> &#runtime::groups::#group }
        }
        _ => quote_spanned! {at=> &#group },
    }
}

/// The statements that describe the call, run only when it is recorded.
fn entry(args: &Args) -> TokenStream {
    let rt = private(args, Span::mixed_site());
    let attributes = args.attributes.iter().filter_map(|attribute| match &attribute.value {
        Value::AtEntry(value) => {
            let key = &attribute.key;
            Some(quote_spanned! {at(value)=> #rt::Entry::attribute(&mut entry, #key, &(#value)); })
        }
        Value::OfResult(_) => None,
    });
    let step =
        args.step.as_ref().map(|step| quote_spanned! {at(step)=> #rt::Entry::step(&mut entry, #step); });
    let of_call = texts(args).chain(counts(args).filter_map(|(method, value)| match value {
        Some(Value::AtEntry(value)) => Some((method, quote! { #value }, at(value))),
        _ => None,
    }));
    let of_call = of_call.map(|(method, value, at)| {
        let method = Ident::new(method, at);
        quote_spanned! {at=> #rt::ModelCall::#method(#rt::Entry::model_call(&mut entry), #value); }
    });
    let kind = args
        .kind
        .as_ref()
        .map(|kind| quote_spanned! {at(kind)=> #rt::Entry::kind(&mut entry, #rt::SpanKind::#kind); });
    let bucket = args
        .bucket
        .as_ref()
        .map(|bucket| quote_spanned! {at(bucket)=> #rt::Entry::bucket(&mut entry, #rt::Bucket::#bucket); });
    let umbrella =
        args.umbrella.as_ref().map(|word| quote_spanned! {at(word)=> #rt::Entry::umbrella(&mut entry); });
    let sample_key = args
        .sample_key
        .as_ref()
        .map(|sample_key| quote_spanned! {at(sample_key)=> #rt::Entry::key(&mut entry, &(#sample_key)); });
    let parent = args
        .parent
        .as_ref()
        .map(|parent| quote_spanned! {at(parent)=> #rt::Entry::parent(&mut entry, &(#parent)); });
    let links =
        args.links.as_ref().map(|links| quote_spanned! {at(links)=> #rt::Entry::links(&mut entry, #links); });
    let of_span = when_any(
        [kind, bucket, umbrella, sample_key, parent, links].into_iter().flatten().chain(attributes),
        &quote_spanned! {Span::mixed_site()=> #rt::Entry::has_span(&entry) },
    );
    quote! { #step #of_span #(#of_call)* }
}

/// What is said of the model, by the method that takes it.
fn texts(args: &Args) -> impl Iterator<Item = (&'static str, TokenStream, Span)> {
    [("model", &args.model), ("provider", &args.provider), ("operation", &args.operation)]
        .into_iter()
        .filter_map(|(method, value)| {
            let value = value.as_ref()?;
            Some((method, quote_spanned! {at(value)=> &(#value) }, at(value)))
        })
}

/// What is counted, by the method that takes it.
fn counts(args: &Args) -> impl Iterator<Item = (&'static str, &Option<Value>)> {
    [
        ("input_tokens", &args.tokens.input),
        ("output_tokens", &args.tokens.output),
        ("usage", &args.tokens.usage),
        ("latencies", &args.latencies),
    ]
    .into_iter()
}

/// The body, behind the statements that bind its parameters where there are any. Then it is not the tail of what
/// the function becomes: what its own tail borrows is dropped before the parameters, in every edition.
fn body_with(function: &Function, parameters: &Parameters) -> TokenStream {
    let body = body(function);
    if !parameters.in_order {
        return body;
    }
    let bound = parameters.bound_in_order();
    let ty = written_result(function).unwrap_or_else(|| parse_quote!(_));
    quote_spanned! {Span::mixed_site()=> { #bound let out: #ty = #body; out } }
}

/// `self` and what is not handed on is captured.
fn run_sync(args: &Args, function: &Function, parameters: &Parameters) -> TokenStream {
    let Parameters { handed, in_order } = parameters;
    let rt = private(args, Span::mixed_site());
    let names: Vec<_> = handed.iter().map(|handed| &handed.name).collect();
    let patterns = handed.iter().map(|handed| match in_order {
        false => handed.pattern.to_token_stream(),
        true => handed.name.to_token_stream(),
    });
    let result = written_result(function).map(|ty| quote! { -> #ty });
    let body = body_with(function, parameters);
    // A parameter that only the annotation uses is not an unused one.
    let used = names.iter().filter(|name| args.mentions(name));
    let body = match used.clone().next() {
        None => body,
        Some(_) => quote_spanned! {Span::mixed_site()=> { #(let _ = &#used;)* #body } },
    };
    quote_spanned! {Span::mixed_site()=>
        #[allow(clippy::used_underscore_binding)]
        let arguments = (#(#names,)*);
        let out = #rt::run(arguments, move |(#(#patterns,)*)| #result #body);
    }
}

fn run_async(args: &Args, function: &Function, parameters: &Parameters) -> TokenStream {
    let rt = private(args, Span::mixed_site());
    let edge = written_result(function).map(|ty| {
        let rt = private(args, at(&ty));
        quote_spanned! {at(&ty)=> if false { return #rt::never::<#ty>(); } }
    });
    let captures = parameters.captures(function);
    let body = body_with(function, parameters);
    if never_returns(function) {
        // `!` is no type of a value yet, but coerces to one that has none.
        return quote_spanned! {Span::mixed_site()=>
            #[allow(unreachable_code)]
            let body = async move { #captures let never: #rt::Infallible = #body; never };
            let out = #rt::traced(&mut call, body).await;
        };
    }
    quote_spanned! {Span::mixed_site()=>
        let out = #rt::traced(&mut call, async move { #captures #edge #body }).await;
    }
}

pub(crate) fn never_returns(function: &Function) -> bool {
    matches!(&function.signature.output, ReturnType::Type(_, ty) if matches!(peeled(ty), Type::Never(_)))
}

/// The future or stream that was returned, within the call.
fn follow(args: &Args, function: &Function, form: Form, returned: Returned) -> TokenStream {
    let rt = private(args, Span::mixed_site());
    let settle = settle(args, function, form, &quote_spanned! {Span::mixed_site()=> *out });
    let follow =
        Ident::new(if matches!(form, Form::Stream(_)) { "streamed" } else { "followed" }, Span::mixed_site());
    let followed = quote_spanned! {Span::mixed_site()=> #rt::#follow(call, out, |open: &mut #rt::Open, out| { #settle }) };
    match returned {
        Returned::Opaque => followed,
        // One that is off stays the box that it is.
        Returned::Boxed => quote_spanned! {Span::mixed_site()=>
            if #rt::Scope::recorded(&mut call).is_some() { #rt::Box::pin(#followed) } else { out }
        },
    }
}

/// The statements that look at the result, which is the place `out`, run only when the call is recorded.
/// Methods are called by their paths: a trait of the user's may have some of the same names.
pub(crate) fn settle(args: &Args, function: &Function, form: Form, out: &TokenStream) -> TokenStream {
    let rt = private(args, Span::mixed_site());
    let attributes = args.attributes.iter().filter_map(|attribute| match &attribute.value {
        Value::OfResult(closure) => {
            let key = &attribute.key;
            Some(quote_spanned! {at(closure)=> #rt::Open::attribute(open, #key, &#rt::taken(ok, #closure)); })
        }
        Value::AtEntry(_) => None,
    });
    let attributes = when_any(attributes, &quote_spanned! {Span::mixed_site()=> #rt::Open::has_span(open) });
    let counts = counts(args).filter_map(|(method, value)| match value {
        Some(Value::OfResult(closure)) => {
            let method = Ident::new(method, at(closure));
            Some(quote_spanned! {at(closure)=>
                #rt::ModelCall::#method(#rt::Open::model_call(open), #rt::taken(ok, #closure));
            })
        }
        _ => None,
    });
    // If the type has no outcome, the return type is where that is said.
    let at_result = match &function.signature.output {
        ReturnType::Type(_, ty) => at(ty),
        ReturnType::Default => Span::mixed_site(),
    };
    let of_result = quote! { #attributes #(#counts)* };
    let of_result = (!of_result.is_empty()).then(|| {
        // The annotation's grammar asks for a closure, so that no lint should ask for a path, or for a
        // `return` that would be nothing but noise there.
        quote_spanned! {Span::mixed_site()=>
            #[allow(clippy::implicit_return, clippy::redundant_closure, clippy::redundant_closure_for_method_calls)]
            if let #rt::Some(ok) = #rt::by_type(&#out).lens_success() { #of_result }
        }
    });
    let failure = quote_spanned! {at_result=> #rt::by_type(&#out).lens_failure() };
    // A stream goes on after an item.
    let settle = if matches!(form, Form::Stream(_)) { "settle_item" } else { "settle" };
    let settle = Ident::new(settle, Span::mixed_site());
    let told = args.err.as_ref().and_then(|(word, policy)| {
        let method = match policy {
            ErrorPolicy::Status => return None,
            ErrorPolicy::Off => return Some(quote_spanned! {at(word)=> #rt::Open::hide_error(open); }),
            ErrorPolicy::Message => "error_message",
            ErrorPolicy::Chain => "error_chain",
        };
        let method = Ident::new(method, at(word));
        Some(quote_spanned! {at(word)=>
            if let #rt::Some(error) = #rt::by_type(&#out).lens_error() { #rt::Open::#method(open, error); }
        })
    });
    quote_spanned! {Span::mixed_site()=> #rt::Open::#settle(open, #failure); #told #of_result }
}

/// `if condition { statements }`, or nothing where there is no statement.
fn when_any(statements: impl Iterator<Item = TokenStream>, condition: &TokenStream) -> Option<TokenStream> {
    let mut statements = statements.peekable();
    statements.peek()?;
    Some(quote_spanned! {Span::mixed_site()=> if #condition { #(#statements)* } })
}

/// The return type as it may stand within the body: `impl Trait` becomes `_`. Nothing where that
/// leaves nothing to say. The unit type is said too: a body that does not return would leave it open.
fn written_result(function: &Function) -> Option<Type> {
    struct Erase;
    impl VisitMut for Erase {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            match ty {
                Type::ImplTrait(_) => *ty = parse_quote!(_),
                _ => visit_mut::visit_type_mut(self, ty),
            }
        }
    }
    let mut ty = function.result();
    Erase.visit_type_mut(&mut ty);
    (!matches!(ty, Type::Infer(_))).then_some(ty)
}

fn body(function: &Function) -> TokenStream {
    let mut tokens = TokenStream::new();
    function.brace.surround(&mut tokens, |tokens| tokens.extend(function.body.clone()));
    tokens
}

/// The runtime, with the spans of where it is named.
fn runtime(args: &Args, at: Span) -> Runtime<'_> {
    Runtime { path: args.runtime.as_ref(), at, private: false }
}

/// The runtime's private module, the only thing besides the groups that an expansion names.
pub(crate) fn private(args: &Args, at: Span) -> Runtime<'_> {
    Runtime { private: true, ..runtime(args, at) }
}

/// A path that an expansion names all over, and so is written token by token: to append a stream to another
/// one asks the compiler each time.
pub(crate) struct Runtime<'a> {
    path: Option<&'a Path>,
    at: Span,
    private: bool,
}

impl ToTokens for Runtime<'_> {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let name = |name, tokens: &mut TokenStream| {
            Token![::](self.at).to_tokens(tokens);
            Ident::new(name, self.at).to_tokens(tokens);
        };
        match self.path {
            Some(path) => path.to_tokens(tokens),
            None => name("lens_runtime", tokens),
        }
        if self.private {
            name("__private", tokens);
        }
    }
}

/// Our hygiene at the user's place: errors and lints point at what they wrote.
fn at(tokens: &impl ToTokens) -> Span {
    Span::mixed_site().located_at(tokens.span())
}

impl ToTokens for Key {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Key::Words(text) => text.to_tokens(tokens),
            Key::Constant(path) => path.to_tokens(tokens),
        }
    }
}
