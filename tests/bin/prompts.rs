//! Which spans are there, of a great many, if only a share is kept?
//!
//! Each step has prompts, each prompt is made into an answer, and that is judged. The prompts of a step are spread over
//! threads, so that they come in another order each time.

use lens_runtime::propagation::in_current_context;
use lens_runtime::{record_tokens, rl_span};

const THREADS: usize = 4;

#[rl_span(group = Step, name = "rl.test.step", step = number)]
pub fn step(number: u64, prompts: usize) {
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let of_thread = (first..prompts).step_by(THREADS);
            scope.spawn(in_current_context(move || of_thread.for_each(|number| prompt(number as u64))));
        }
    });
}

#[rl_span(group = PerPrompt, name = "rl.test.prompt", key = number, attributes(prompt = number))]
fn prompt(number: u64) {
    generate(number);
}

#[rl_span(group = Generation, name = "rl.test.generate", model = "tiny", attributes(prompt = number))]
fn generate(number: u64) {
    record_tokens(1_u32, number);
    reward(number);
}

#[rl_span(group = Reward, name = "rl.test.reward", attributes(prompt = number))]
fn reward(number: u64) {
    std::hint::black_box(number);
}
