//! Nothing in scope stands in the way of the expansion.
#![no_implicit_prelude]
#![deny(warnings)]

use ::lens_runtime::rl_span;
use ::std::clone::Clone;
use ::std::convert::From;
use ::std::iter::Iterator;
use ::std::option::Option;
use ::std::result::Result;
use ::std::string::String;
use ::std::vec::Vec;

#[allow(dead_code)]
struct Some;
#[allow(dead_code)]
struct None;
#[allow(dead_code)]
struct Ok;
#[allow(dead_code)]
struct Err;
#[allow(dead_code)]
struct Box;
#[allow(dead_code)]
struct Generation;
#[allow(dead_code)]
trait Drop {}
mod core {}
mod std {}
mod lens_runtime {}

#[rl_span(
    group = Generation,
    name = "hygiene",
    attributes(size = out, length = |answer| answer.len()),
    tokens(input = call, output = |tokens| tokens.iter().copied()),
    model = entry.as_str(),
)]
fn shadows(call: u32, entry: String, out: u32) -> Result<Vec<u64>, String> {
    let group = call;
    let name = entry.clone();
    Result::Ok(::std::vec![u64::from(group), u64::from(out), name.len() as u64])
}

#[rl_span(group = Reward, name = "hygiene_async")]
async fn shadows_async(call: u32, ok: Option<u32>) -> Option<u32> {
    let out = ok?;
    Option::Some(out + call)
}

fn main() {
    let _ = shadows(1, String::from("a"), 2);
    let _ = shadows_async(1, Option::None);
}
