//! What does clippy read?
//!
//! The function as it was written, so that clippy says of it what it says of a bare one, and the user's lint
//! attributes have their effect. Many lints look at the function's own statements, or at how a parameter is
//! used, and are silent or mistaken where the body stands in a closure. What clippy reads never runs.

use std::sync::LazyLock;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::discouraged::Speculative as _;
use syn::parse::{ParseStream, Parser as _};
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{AttrStyle, Item, Type};

use crate::args::Value;
use crate::check::{Form, Function, Plan};
use crate::expand::{never_returns, private, recorded, settle};

/// Whether it is clippy that expands this, which is rustc under a name of its own. `#[cfg(clippy)]` would say
/// so too, at the price that every other compiler run has every function twice.
pub(crate) fn is_clippy() -> bool {
    static IS_CLIPPY: LazyLock<bool> = LazyLock::new(|| {
        let program = std::env::current_exe().unwrap_or_default();
        program.file_stem().is_some_and(|name| name == "clippy-driver")
    });
    *IS_CLIPPY
}

/// The function as it was written. The annotation goes along in a closure of its own, so that its names are
/// used and its types are checked.
///
/// Nothing where the annotation uses a result whose type only the body tells.
pub(crate) fn bare(plan: &Plan, call: &TokenStream) -> Option<TokenStream> {
    let Plan { args, function, form } = plan;
    let Function { attributes, visibility, defaultness, signature, .. } = function;
    let rt = private(args, Span::mixed_site());
    let settle = match (form, settled_type(function, *form)) {
        (Form::Guard, _) => None,
        _ if never_returns(function) => None,
        (_, Some(ty)) => {
            let settle = settle(args, function, *form, &quote_spanned! {Span::mixed_site()=> out });
            let settle = recorded(args, function, *form, &settle);
            Some(quote_spanned! {Span::mixed_site()=> let out = #rt::never::<#ty>(); #settle })
        }
        (_, None) if args.values().any(|value| matches!(value, Value::OfResult(_))) => return None,
        (_, None) => None,
    };
    let annotation = quote_spanned! {Span::mixed_site()=>
        // The body's own `use` may make a path of the signature longer than need be.
        #[allow(unused_qualifications)]
        let _ = || {
            #[allow(unused_mut, unused_variables)]
            let mut call = #call;
            #settle
        };
    };
    // Items of the body stay above every statement: that is where clippy wants them.
    let (items, rest) = leading_items(function.body.clone());
    let (outer, inner): (Vec<_>, Vec<_>) =
        attributes.iter().partition(|attribute| matches!(attribute.style, AttrStyle::Outer));
    let inner = quote! { #(#inner)* };
    let mut block = TokenStream::new();
    function.brace.surround(&mut block, |block| block.extend([inner, items, annotation, rest]));
    Some(quote! { #(#outer)* #visibility #defaultness #signature #block })
}

/// The type of what settles a call, if it can be said without the body.
fn settled_type(function: &Function, form: Form) -> Option<Type> {
    struct Associated(&'static str, Option<Type>);
    impl Visit<'_> for Associated {
        fn visit_assoc_type(&mut self, found: &syn::AssocType) {
            if found.ident == self.0 {
                self.1.get_or_insert_with(|| found.ty.clone());
            }
        }
    }
    struct IsOpaque(bool);
    impl Visit<'_> for IsOpaque {
        fn visit_type_impl_trait(&mut self, _: &syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let written = function.result();
    let associated = |name| {
        let mut associated = Associated(name, None);
        associated.visit_type(&written);
        associated.1
    };
    let mut ty = match form {
        Form::Future(_) => associated("Output")?,
        Form::Stream(_) => associated("Item")?,
        Form::Value | Form::Guard => written,
    };
    let mut is_opaque = IsOpaque(false);
    is_opaque.visit_type(&ty);
    Elide.visit_type_mut(&mut ty);
    (!is_opaque.0).then_some(ty)
}

/// Leaves lifetimes to be inferred: one that the body names counts as needed.
struct Elide;

impl VisitMut for Elide {
    fn visit_lifetime_mut(&mut self, lifetime: &mut syn::Lifetime) {
        if lifetime.ident != "static" {
            lifetime.ident = Ident::new("_", lifetime.ident.span());
        }
    }

    // What `for<'a>` declares stays as it is.
    fn visit_type_bare_fn_mut(&mut self, _: &mut syn::TypeBareFn) {}

    fn visit_trait_bound_mut(&mut self, bound: &mut syn::TraitBound) {
        if bound.lifetimes.is_none() {
            visit_mut::visit_trait_bound_mut(self, bound);
        }
    }
}

/// The items at the top of a body, and what follows them.
fn leading_items(body: TokenStream) -> (TokenStream, TokenStream) {
    let parser = |input: ParseStream<'_>| {
        let mut items = TokenStream::new();
        loop {
            let ahead = input.fork();
            match ahead.parse::<Item>() {
                // A macro that is called is a statement.
                Ok(Item::Macro(item)) if item.ident.is_none() => break,
                Ok(item) => items.extend(item.into_token_stream()),
                Err(_) => break,
            }
            input.advance_to(&ahead);
        }
        Ok((items, input.parse()?))
    };
    parser.parse2(body.clone()).unwrap_or_else(|_| (TokenStream::new(), body))
}
