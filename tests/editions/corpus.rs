//! One body of code in every edition: does an annotated function keep the meaning that its edition gives it?
//!
//! It is the library of a package for each edition before ours, and a module of `faults.rs`.
#![cfg(test)]

use std::cell::RefCell;
use std::future::Future;
use std::num::ParseIntError;
use std::sync::Mutex;

use lens_runtime::rl_span;
use lens_runtime::testing::Capture;

/// Tells when it is dropped.
struct Noisy<'a>(&'a RefCell<Vec<u32>>, u32);

impl Drop for Noisy<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

struct Pair<'a> {
    first: Noisy<'a>,
    second: Noisy<'a>,
}

#[rl_span(group = Reward, name = "tail")]
fn tail(lock: &Mutex<Vec<u32>>) -> usize {
    lock.lock().unwrap().len()
}

/// What the tail borrows is a parameter's, which outlives it in every edition.
#[rl_span(group = Reward, name = "pattern")]
fn pattern((lock, _): (Mutex<Vec<u32>>, u32)) -> usize {
    lock.lock().unwrap().len()
}

#[rl_span(group = Reward, name = "branches")]
async fn branches(lock: &Mutex<Vec<u32>>) -> Result<usize, String> {
    tokio::task::yield_now().await;
    if lock.lock().unwrap().is_empty() {
        return Err(String::new());
    }
    Ok(lock.lock().unwrap().len())
}

#[rl_span(group = Reward, name = "question", attributes(twice = |out| out * 2))]
fn question(text: &str) -> Result<u32, ParseIntError> {
    let number: u32 = text.parse()?;
    Ok(number)
}

#[rl_span(group = Reward, name = "future")]
fn future(list: &[u32]) -> impl Future<Output = usize> + '_ {
    async move { list.len() }
}

impl Pair<'_> {
    /// Which field a closure captures is a matter of the edition; when it is dropped is not.
    #[rl_span(group = Reward, name = "part", attributes(first = self.first.1))]
    fn part(self) -> u32 {
        drop(self.second);
        1
    }
}

/// tokio-rs/tracing#3066, emit-rs/emit#360
#[test]
fn fault_56_an_annotated_function_is_of_its_users_edition() {
    let (lock, log) = (Mutex::new(vec![1]), RefCell::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let capture = Capture::new("reward");
    capture.run(|| {
        assert_eq!((tail(&lock), question("2")), (1, Ok(2)));
        assert_eq!(pattern((Mutex::new(vec![]), 0)), 0);
        Pair { first: Noisy(&log, 1), second: Noisy(&log, 2) }.part();
        assert_eq!(runtime.block_on(branches(&lock)), Ok(1));
        assert_eq!(runtime.block_on(future(&[1])), 1);
    });
    assert_eq!(log.into_inner(), [2, 1]);
    assert_eq!(
        capture.tree(),
        "tail (ok)\nquestion (ok)\npattern (ok)\npart (ok)\nbranches (ok)\nfuture (ok)\n"
    );
}
