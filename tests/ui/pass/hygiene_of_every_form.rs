//! Nothing in scope stands in the way of any form of the expansion, or of any argument.
#![no_implicit_prelude]
#![deny(warnings)]

use ::lens_runtime::rl_span;
use ::std::future::Future;
use ::std::pin::Pin;
use ::std::result::Result;
use ::std::string::String;
use ::std::vec::Vec;

#[allow(dead_code)]
mod taken {
    pub struct Some;
    pub struct None;
    pub struct Ok;
    pub struct Err;
    pub struct Box;
    pub struct Option;
    pub struct Call;
    pub struct Reward;
    pub trait Drop {}
    pub trait Iterator {}
    pub trait FnOnce {}
    pub trait Send {}
}
#[allow(unused_imports)]
use taken::*;
mod core {}
mod std {}
mod alloc {}
mod lens_runtime {}
mod opentelemetry {}

/// Macros that an expansion might call.
#[allow(unused_macros)]
mod macros {
    macro_rules! panic { () => { compile_error!("not mine") } }
    macro_rules! unreachable { () => { compile_error!("not mine") } }
    macro_rules! format { () => { compile_error!("not mine") } }
    macro_rules! stringify { () => { compile_error!("not mine") } }
}

#[rl_span(
    group = Reward,
    name = "value",
    err = message,
    kind = client,
    bucket = idle,
    step = number,
    tokens = |out| (out.len(), 1_u32),
    latencies = |_| [::std::time::Duration::ZERO],
    provider = "own",
    links = links,
)]
fn value(number: u32, links: &[::lens_runtime::opentelemetry::Context]) -> Result<String, String> {
    Result::Ok(String::new())
}

#[rl_span(group = Reward, name = "chain", err = chain)]
async fn chain() -> Result<Vec<u32>, ::std::num::ParseIntError> {
    Result::Ok(Vec::new())
}

#[rl_span(group = Reward, name = "opaque", attributes(twice = |out| *out * 2))]
fn opaque() -> impl Future<Output = u32> {
    ::std::future::ready(1)
}

#[rl_span(group = Reward, name = "boxed", err = off)]
fn boxed() -> Pin<::std::boxed::Box<dyn Future<Output = Result<u32, String>>>> {
    ::std::boxed::Box::pin(::std::future::ready(Result::Ok(1)))
}

#[rl_span(group = Reward, name = "guard", umbrella)]
#[track_caller]
fn guard() {}

fn main() {
    let _ = (value(1, &[]), chain(), opaque(), boxed());
    guard();
}
