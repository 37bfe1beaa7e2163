//! How are mistakes told? All of them at once, each on its token, beside the untouched item.

use proc_macro2::TokenStream;

/// The mistakes found so far in one annotation.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The compile errors, followed by the item as it was, so that callers of the function do not
    /// get a second error for a name that is missing.
    pub(crate) fn beside(self, item: TokenStream) -> TokenStream {
        let mut tokens = self.0.map(|error| error.to_compile_error()).unwrap_or_default();
        tokens.extend(item);
        tokens
    }
}

/// `; did you mean `…`?` for the word among `known` that is nearest to `word`, if one is near.
pub(crate) fn did_you_mean(word: &str, known: &[&str]) -> String {
    let nearest =
        known.iter().map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate)).min();
    match nearest {
        Some((distance, candidate)) if distance <= 1 + candidate.len() / 4 => {
            format!("; did you mean `{candidate}`?")
        }
        _ => String::new(),
    }
}
