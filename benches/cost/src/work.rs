//! What do the functions do that are measured? Nearly nothing, and in each program the same.
//!
//! The bare functions stand here too: every program measures them, so that each is compared with itself.

use std::hint::black_box;
use std::sync::LazyLock;
use std::task::Poll;

use tokio::runtime::{Builder, Runtime};

use crate::found::{PROMPTS, SAMPLES};
use crate::measure::{BARE, Case, OFF_ASYNC, OFF_SYNC, OFF_WIDE, ON_ASYNC, ON_TREE, case, nobody};

/// What functions with attributes say of themselves, beside what they get.
pub const KIND: &str = "sample";
pub const SHARE: f64 = 0.5;

/// What a function does.
#[inline]
pub fn work(index: i64) -> i64 {
    black_box(index) + 1
}

/// What a function of three parameters does. It looks at them all, so that the compiler leaves out none where there
/// is nothing else that does.
#[inline]
pub fn wide_work(kind: &'static str, index: i64, share: f64) -> i64 {
    black_box((kind, share));
    work(index)
}

/// Makes calls, of whose arguments and results the compiler knows nothing.
#[inline]
pub fn calls<T>(number: u64, call: impl Fn(i64) -> T) {
    for index in 0..number.cast_signed() {
        black_box(call(black_box(index)));
    }
}

/// Makes calls of a function of three parameters.
#[inline]
pub fn wide_calls<T>(number: u64, call: impl Fn(&'static str, i64, f64) -> T) {
    calls(number, |index| call(black_box(KIND), index, black_box(SHARE)));
}

/// Makes asynchronous calls, one after the other, in one run of the runtime.
#[inline]
pub fn async_calls<T>(number: u64, call: impl AsyncFn(i64) -> T) {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime"));
    RUNTIME.block_on(async {
        for index in 0..number.cast_signed() {
            black_box(call(black_box(index)).await);
        }
    });
}

/// What an asynchronous function does: three awaits, each of which is taken up again at the next poll.
#[inline]
pub async fn async_work(index: i64) -> i64 {
    pause().await;
    pause().await;
    pause().await;
    work(index)
}

fn pause() -> impl Future<Output = ()> {
    let mut is_over = false;
    std::future::poll_fn(move |context| match std::mem::replace(&mut is_over, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
}

pub const CASES: &[Case] = &[
    case(OFF_SYNC, BARE, nobody, |number| calls(number, call)),
    case(OFF_WIDE, BARE, nobody, |number| wide_calls(number, wide)),
    case(OFF_ASYNC, BARE, nobody, |number| async_calls(number, async_call)),
    case(ON_TREE, BARE, nobody, |number| calls(number, step)),
    case(ON_ASYNC, BARE, nobody, |number| async_calls(number, async_call)),
];

#[inline(never)]
fn call(index: i64) -> i64 {
    work(index)
}

#[inline(never)]
fn wide(kind: &'static str, index: i64, share: f64) -> i64 {
    wide_work(kind, index, share)
}

#[inline(never)]
async fn async_call(index: i64) -> i64 {
    async_work(index).await
}

#[inline(never)]
fn step(index: i64) -> i64 {
    generate(index)
}

#[inline(never)]
fn generate(index: i64) -> i64 {
    each(PROMPTS, |number| prompt(index + number))
}

#[inline(never)]
fn prompt(index: i64) -> i64 {
    each(SAMPLES, |number| call(index + number))
}

/// Calls what is below, so many times.
#[inline]
pub fn each(times: i64, below: impl Fn(i64) -> i64) -> i64 {
    (0..times).map(below).sum()
}
