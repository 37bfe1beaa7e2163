//! Functions with every word that may stand before `fn`, and attributes that name their symbol.
#![deny(warnings)]

use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "async unsafe")]
pub async unsafe fn asynchronous(pointer: *const u32) -> u32 {
    std::future::ready(()).await;
    unsafe { *pointer }
}

#[rl_span(group = Reward, name = "unsafe extern")]
pub unsafe extern "C" fn foreign(pointer: *const u32) -> u32 {
    unsafe { *pointer }
}

#[rl_span(group = Reward, name = "symbol above")]
#[unsafe(no_mangle)]
pub extern "C" fn lens_symbol_above(number: u32) -> u32 {
    number
}

#[unsafe(no_mangle)]
#[rl_span(group = Reward, name = "symbol below")]
pub extern "C-unwind" fn lens_symbol_below(number: u32) -> u32 {
    number
}

mod inside {
    use super::rl_span;

    #[rl_span(group = Reward, name = "restricted")]
    pub(in crate::inside) fn restricted() {}

    #[rl_span(group = Reward, name = "of the parent")]
    pub(super) fn of_the_parent() {
        restricted();
    }
}

trait Reset {
    #[rl_span(group = Reward, name = "unsafe method")]
    unsafe fn reset(&mut self) -> &mut Self {
        self
    }
}

impl Reset for u32 {}

fn main() {
    let number = 1;
    unsafe {
        drop(asynchronous(&number));
        foreign(&number);
        1_u32.reset();
    }
    lens_symbol_above(1);
    lens_symbol_below(1);
    inside::of_the_parent();
}
