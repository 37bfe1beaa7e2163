//! A return type that comes out of a macro's `$ty:ty`, or stands in parentheses, is the type that it is.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use lens_runtime::rl_span;

macro_rules! function {
    ($name:ident($($parameter:ident: $of:ty)?) -> $ty:ty $body:block) => {
        #[rl_span(group = Reward, name = stringify!($name))]
        fn $name($($parameter: $of)?) -> $ty $body
    };
}

function!(plain() -> Result<u32, String> { Ok(1) });
function!(boxed() -> Pin<Box<dyn Future<Output = u32>>> { Box::pin(std::future::ready(1)) });
function!(opaque() -> impl Future<Output = u32> { async { 1 } });
function!(closure(prefix: &str) -> impl Fn(&str) -> &str {
    let skip = prefix.len();
    move |text| &text[skip..]
});
function!(never() -> ! { std::process::exit(0) });

#[allow(unused_parens)]
#[rl_span(group = Reward, name = "parentheses")]
fn parentheses() -> (impl Future<Output = u32>) {
    async { 1 }
}

fn main() {
    let cx = &mut Context::from_waker(Waker::noop());
    assert_eq!(plain(), Ok(1));
    assert_eq!(closure("a")("ab"), "b");
    assert!(boxed().as_mut().poll(cx).is_ready());
    assert!(pin!(opaque()).poll(cx).is_ready());
    assert!(pin!(parentheses()).poll(cx).is_ready());
    never();
}
