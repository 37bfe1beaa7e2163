//! Functions as they come, none of which makes a warning.
#![deny(warnings)]

use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "unit")]
fn unit() {}

#[rl_span(group = Reward, name = "generic")]
fn generic<T: Clone, const N: usize>(items: &[T; N]) -> Vec<T>
where
    T: Send,
{
    items.to_vec()
}

#[rl_span(group = Reward, name = "argument", attributes(size = size))]
fn argument_position(size: usize, items: impl Iterator<Item = u32>) -> u32 {
    items.sum()
}

#[rl_span(group = Reward, name = "patterns", attributes(first = first))]
fn patterns((first, _): (u32, u32), _: &str, [a, .., b]: [u32; 3]) -> u32 {
    first + a + b
}

#[rl_span(group = Reward, name = "used by the annotation alone", attributes(step = step), step = step)]
fn used_by_the_annotation(step: u64) {}

#[rl_span(group = Reward, name = "cfg")]
fn cfg(a: u32, #[cfg(any())] missing: Missing) -> u32 {
    a
}

/// Documented.
#[must_use]
#[inline]
#[rl_span(group = Reward, name = "attributes")]
pub fn attributes() -> u32 {
    1
}

#[rl_span(group = Reward, name = "unsafe")]
unsafe fn dangerous(pointer: *const u32) -> u32 {
    unsafe { *pointer }
}

#[rl_span(group = Reward, name = "extern")]
extern "C" fn foreign(a: u32) -> u32 {
    a
}

#[rl_span(group = Reward, name = "early")]
fn early(items: &[u32]) -> Option<u32> {
    for item in items {
        if *item > 1 {
            return Some(*item);
        }
    }
    let first = items.first()?;
    Some(*first)
}

#[rl_span(group = Reward, name = "recursive")]
async fn recursive(depth: u32) -> u32 {
    match depth {
        0 => 0,
        _ => 1 + Box::pin(recursive(depth - 1)).await,
    }
}

trait Engine {
    fn generate(&mut self, prompt: &str) -> impl std::future::Future<Output = usize> + Send;

    #[rl_span(group = Generation, name = "default method")]
    fn default_method(&self) -> u32 {
        1
    }
}

struct Local {
    calls: usize,
}

impl Engine for Local {
    #[rl_span(group = Generation, name = "trait method", attributes(calls = self.calls))]
    async fn generate(&mut self, prompt: &str) -> usize {
        self.calls += 1;
        prompt.len()
    }
}

macro_rules! phases {
    ($($name:ident => $body:block,)+) => {
        $(
            #[rl_span(group = Reward, name = stringify!($name))]
            fn $name() -> u32 $body
        )+
    };
}

phases! {
    first => { 1 },
    second => { first() + 1 },
}

fn main() {
    unit();
    let _ = (generic(&[1, 2]), argument_position(1, [1].into_iter()), patterns((1, 2), "", [1, 2, 3]));
    used_by_the_annotation(1);
    let _ = (cfg(1), attributes(), unsafe { dangerous(&1) }, foreign(1), early(&[1]), second());
    let mut engine = Local { calls: 0 };
    let _ = (engine.default_method(), engine.generate(""), recursive(1));
}
