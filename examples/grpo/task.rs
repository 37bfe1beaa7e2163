//! What does the policy have to do, and how is its answer verified?

use std::collections::HashMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Every problem has this many digits …
pub const DIGITS: usize = 3;

/// … so there are this many problems.
const PROBLEMS: usize = 1000;

/// The tokens, by number. The last one, the full stop, ends an answer.
const SYMBOLS: [char; 12] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '=', '.'];

/// The number of the full stop.
pub const END_TOKEN: u32 = 11;

/// One problem in this many is held out, and never trained on.
const HELD_OUT_ONE_IN: u64 = 5;

/// What a wrong answer can earn at most, for getting some of its tokens right.
const PARTIAL_CREDIT: f64 = 0.5;

/// The rule that leads from a question to its only right answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    Copy,
    Reverse,
}

/// A question and its answer as text, such as `123=` and `321.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub question: String,
    pub answer: String,
}

/// A problem in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub tokens: Vec<u32>,
    pub answer: Vec<u32>,
}

/// One token per character.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    tokens: HashMap<char, u32>,
}

/// All problems of a task, split in two.
#[derive(Debug, Clone)]
pub struct Dataset {
    pub train: Vec<Problem>,
    pub held_out: Vec<Problem>,
}

impl Task {
    fn problem(self, number: usize) -> Problem {
        let digits = format!("{number:0DIGITS$}");
        let answer = match self {
            Self::Copy => digits.clone(),
            Self::Reverse => digits.chars().rev().collect(),
        };
        Problem { question: format!("{digits}="), answer: format!("{answer}.") }
    }
}

impl Tokenizer {
    pub fn new() -> Self {
        Self { tokens: SYMBOLS.into_iter().zip(0..).collect() }
    }

    pub fn vocabulary_size(&self) -> usize {
        self.tokens.len()
    }

    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        text.chars()
            .map(|symbol| {
                let token = self.tokens.get(&symbol).copied();
                token.with_context(|| format!("no token for {symbol:?}"))
            })
            .collect()
    }

    pub fn encode_problem(&self, problem: &Problem) -> Result<Prompt> {
        Ok(Prompt { tokens: self.encode(&problem.question)?, answer: self.encode(&problem.answer)? })
    }
}

impl Dataset {
    /// The split hangs on a hash of the question alone, so it is the same for every seed, and no
    /// checkpoint can have been trained on what another one is evaluated on.
    pub fn new(task: Task) -> Self {
        let problems = (0..PROBLEMS).map(|number| task.problem(number));
        let (held_out, train) =
            problems.partition(|problem| fnv1a(&problem.question).is_multiple_of(HELD_OUT_ONE_IN));
        Self { train, held_out }
    }
}

/// The reward: 1 for exactly the right answer; otherwise a share of `PARTIAL_CREDIT` for every token
/// that is right and in its place, the end token included.
///
/// Without the partial credit nearly all groups of an untrained policy would be wrong throughout,
/// and a group in which all samples earn the same teaches nothing.
pub fn reward(prompt: &Prompt, response: &[u32]) -> f64 {
    if response == prompt.answer {
        return 1.0;
    }
    let pairs = prompt.answer.iter().zip(response);
    let right = pairs.filter(|(expected, token)| expected == token).count();
    PARTIAL_CREDIT * right as f64 / prompt.answer.len() as f64
}

/// The 64-bit FNV-1a hash.
fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
