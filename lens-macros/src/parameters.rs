//! How do the parameters of an annotated function get to its body?
//!
//! Most are handed on: as parameters of the body's closure, or as what its future captures. The order in which
//! they are dropped stays that of the bare function.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::visit::{self, Visit};
use syn::{FnArg, Pat, parse_quote};

use crate::args::{Args, contains};
use crate::check::{Form, Function};

/// The parameters that are handed on.
pub(crate) struct Parameters {
    pub(crate) handed: Vec<Handed>,
    /// Whether a pattern leaves out a part of its parameter. That part is dropped in the place of the parameter,
    /// so that they are bound one after the other within the body.
    pub(crate) in_order: bool,
}

/// A parameter that the body gets under its own pattern, and the function under a plain name.
pub(crate) struct Handed {
    /// Its place among the parameters.
    place: usize,
    pub(crate) name: Ident,
    pub(crate) pattern: Pat,
}

impl Parameters {
    /// The parameters that are handed on to the body, which keeps the order in which they are dropped. One
    /// under `#[cfg]` is captured instead: it may not exist, and a list cannot say "perhaps". So is a pattern
    /// whose names the annotation uses.
    pub(crate) fn of(args: &Args, function: &Function) -> Self {
        struct LeavesOut(bool);
        impl<'ast> Visit<'ast> for LeavesOut {
            fn visit_pat_wild(&mut self, _: &'ast syn::PatWild) {
                self.0 = true;
            }
            fn visit_pat_rest(&mut self, _: &'ast syn::PatRest) {
                self.0 = true;
            }
        }
        let parameters = function.signature.inputs.iter().enumerate();
        let handed: Vec<_> = parameters
            .filter_map(|(place, parameter)| {
                let FnArg::Typed(parameter) = parameter else { return None };
                if !parameter.attrs.is_empty() {
                    return None;
                }
                let placeholder = Ident::new(&format!("_argument{place}"), Span::mixed_site());
                let (name, pattern) = match &*parameter.pat {
                    Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => {
                        (name.ident.clone(), Pat::Ident(name.clone()))
                    }
                    // Without a name it would not be dropped in its place.
                    Pat::Wild(_) => (placeholder.clone(), parse_quote!(#placeholder)),
                    pattern if names_of(pattern).iter().any(|name| args.mentions(name)) => return None,
                    pattern => (placeholder, pattern.clone()),
                };
                Some(Handed { place, name, pattern })
            })
            .collect();
        let mut leaves_out = LeavesOut(false);
        for Handed { pattern, .. } in &handed {
            leaves_out.visit_pat(pattern);
        }
        Self { handed, in_order: leaves_out.0 }
    }

    /// Statements that bind one parameter after the other.
    pub(crate) fn bound_in_order(&self) -> TokenStream {
        let statements = self.handed.iter().map(|Handed { name, pattern, .. }| match pattern {
            Pat::Ident(_) => quote_spanned! {Span::mixed_site()=> let #pattern = #name; },
            // What the pattern leaves out stays where it is.
            pattern => quote_spanned! {Span::mixed_site()=> let #name = #name; let #pattern = #name; },
        });
        quote! { #(#statements)* }
    }

    /// A future drops what it captured in the order in which that is named first. So all is named here, last
    /// parameter first, as an `async fn` drops them.
    pub(crate) fn captures(&self, function: &Function) -> Option<TokenStream> {
        let Self { handed, in_order } = self;
        let parameters = function.signature.inputs.iter().enumerate().rev();
        let names = parameters.flat_map(|(place, parameter)| match parameter {
            FnArg::Receiver(receiver) if receiver.reference.is_none() => {
                vec![Ident::from(receiver.self_token)]
            }
            FnArg::Typed(parameter) if parameter.attrs.is_empty() => {
                let of_place = handed.iter().find(|handed| handed.place == place);
                match (&*parameter.pat, of_place) {
                    (Pat::Wild(_), Some(handed)) => vec![handed.name.clone()],
                    // Bound within the future.
                    (_, Some(_)) if *in_order => Vec::new(),
                    (pattern, _) => names_of(pattern).into_iter().rev().collect(),
                }
            }
            _ => Vec::new(),
        });
        // One that the body does not use is left alone, or rustc would not say that it is unused.
        let body = &function.body;
        let names: Vec<_> =
            names.filter(|name| name.to_string().starts_with('_') || contains(body.clone(), name)).collect();
        (names.len() > 1).then(|| {
            quote_spanned! {Span::mixed_site()=>
                #[allow(clippy::used_underscore_binding)]
                let _ = (#(&#names,)*);
            }
        })
    }

    /// The signature as the user wrote it, but that parameters which are handed on have plain names here.
    pub(crate) fn outer_signature(&self, function: &Function, form: Form) -> syn::Signature {
        let mut signature = function.signature.clone();
        if form == Form::Guard {
            return signature;
        }
        let keeps_patterns = signature.asyncness.is_some() && !self.in_order;
        for Handed { place, name, .. } in &self.handed {
            if let FnArg::Typed(parameter) = &mut signature.inputs[*place]
                && (!keeps_patterns || matches!(*parameter.pat, Pat::Wild(_)))
            {
                *parameter.pat = parse_quote!(#name);
            }
        }
        signature
    }
}

/// The names that a pattern binds, in order.
fn names_of(pattern: &Pat) -> Vec<Ident> {
    struct Names(Vec<Ident>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, name: &'ast syn::PatIdent) {
            self.0.push(name.ident.clone());
            visit::visit_pat_ident(self, name);
        }
    }
    let mut names = Names(Vec::new());
    names.visit_pat(pattern);
    names.0
}
