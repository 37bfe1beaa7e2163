//! Nothing: a package needs a target of its own beside its examples.
