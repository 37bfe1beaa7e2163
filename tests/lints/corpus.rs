//! Functions of all shapes, most of which trip lints, for `lints.rs` to compare. Never run.
//!
//! A function takes part by the line above it, a comment here and the annotation in the other twin.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

// In both twins: which types rustc names by their whole path depends on the crates that it has read.
use lens_runtime as _;

use futures_core::Stream;

/// An engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Engine {
    calls: usize,
    name: String,
    weights: Vec<f32>,
}

/// What goes wrong.
#[derive(Debug)]
pub enum Failure {
    /// Empty.
    Empty,
    /// Told.
    Told(String),
}

impl Display for Failure {
    // recorded
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Empty => write!(f, "empty"),
            Failure::Told(text) => write!(f, "{}", text),
        }
    }
}

impl From<std::num::ParseIntError> for Failure {
    // recorded
    fn from(error: std::num::ParseIntError) -> Self {
        Failure::Told(error.to_string())
    }
}

/// Large.
pub struct Large([u64; 600]);

/// Parameters: how they are passed, used and named.
pub mod parameters {
    use super::*;

    // recorded
    pub fn by_value(text: String) -> usize {
        text.len()
    }

    // recorded
    pub fn by_value_of_many(texts: Vec<String>, engine: Engine, limit: usize) -> usize {
        texts.iter().take(limit).count() + engine.calls
    }

    // recorded
    pub fn by_reference_to_vec(items: &Vec<u32>) -> usize {
        items.len()
    }

    // recorded
    pub fn by_reference_to_string(text: &String) -> usize {
        text.len()
    }

    // recorded
    pub fn by_reference_to_box(item: &Box<u32>) -> u32 {
        **item
    }

    // recorded
    pub fn by_mutable_reference_to_vec(items: &mut Vec<u32>) {
        items[0] = 1;
    }

    // recorded
    pub fn by_mutable_reference_for_nothing(items: &mut [u32]) -> usize {
        items.len()
    }

    // recorded
    pub fn by_reference_to_small(number: &u32) -> u32 {
        *number + 1
    }

    // recorded
    pub fn by_reference_to_option(text: &Option<String>) -> bool {
        text.is_none()
    }

    // recorded
    pub fn boxed(item: Box<u32>) -> u32 {
        *item + 1
    }

    // recorded
    pub fn large_by_value(large: Large) -> u64 {
        large.0[1]
    }

    // recorded
    pub fn too_many(a: u32, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32) -> u32 {
        a ^ b ^ c ^ d ^ e ^ f ^ g ^ h
    }

    // recorded
    pub fn bools(a: bool, b: bool, c: bool, d: bool) -> bool {
        a && b || c && d
    }

    // recorded
    pub fn unused(a: u32, b: String) {}

    // recorded
    pub fn underscored(_a: u32, _: u32, _b: &str) {}

    // recorded
    pub fn used_underscored(_a: u32) -> u32 {
        _a + 1
    }

    // recorded
    pub fn needlessly_mut(mut a: u32) -> u32 {
        a
    }

    // recorded
    pub fn assigned_and_not_read(mut a: u32) {
        a = 2;
    }

    // recorded
    pub fn mutated(mut a: u32, mut items: Vec<u32>) -> Vec<u32> {
        a += 1;
        items.push(a);
        items
    }

    // recorded
    pub fn patterns((a, mut b): (u32, u32), [c, .., d]: [u32; 4], Engine { calls, .. }: Engine) -> u32 {
        b = b + a;
        b + c + d + calls as u32
    }

    // recorded
    pub fn references(&a: &u32, ref b: u32) -> u32 {
        a + b
    }

    // recorded
    pub fn unused_in_a_pattern((a, b): (u32, u32)) -> u32 {
        a
    }

    // recorded
    pub fn shadowed(call: u32, entry: u32, out: u32) -> u32 {
        let call = call + 1;
        let out = call + out;
        let entry = 7;
        let arguments = out;
        let out = out;
        out + entry + arguments
    }

    // recorded
    pub fn names_of_ours(call: u32, guard: &str, result: bool) -> usize {
        let out = guard.len();
        let ok = result as usize;
        out + ok + call as usize
    }

    // recorded
    pub fn similar(checked_exp: u32, checked_expr: u32) -> u32 {
        let a = checked_exp;
        let b = checked_expr;
        let c = a;
        let d = b;
        let e = c;
        a + b + c + d + e
    }

    // recorded
    pub fn camelCase(badName: u32) -> u32 {
        badName
    }

    // recorded
    pub fn implicit(items: impl Iterator<Item = u32>) -> u32 {
        items.sum::<u32>()
    }

    // recorded
    pub fn unused_type<T>(a: u32) -> u32 {
        a
    }

    // recorded
    pub fn one_lifetime<'a>(text: &'a str) -> &'a str {
        text.trim()
    }

    // recorded
    pub fn unused_lifetime<'a>(text: &str) -> usize {
        text.len()
    }

    // recorded
    pub fn bounds_twice<T: Clone>(item: &T) -> T
    where
        T: Send,
    {
        item.clone()
    }

    // recorded
    pub fn of_const<const N: usize>(items: &[u32; N]) -> u32 {
        items[0] + N as u32
    }

    // recorded
    pub fn kept(text: String, items: Vec<u32>) -> (String, Vec<u32>) {
        (text, items)
    }

    // recorded, attributes(size = items.len(), first = |out| *out)
    pub fn with_arguments(items: &[u32], a: u32) -> u32 {
        items[0]
    }

    // recorded
    pub fn map_of_default_hasher(map: &HashMap<String, u32>) -> Option<&u32> {
        map.get("a")
    }

    // recorded
    pub fn complex(items: Vec<Box<dyn Fn(Vec<Option<Option<u32>>>) -> Result<Vec<u32>, String>>>) -> usize {
        items.len()
    }

    // recorded
    pub fn borrowed_cow(text: &Cow<'_, str>, shared: Rc<Vec<u32>>) -> usize {
        text.len() + shared.len()
    }

    // recorded
    pub fn with_arc(mutex: Arc<Mutex<bool>>, cell: Arc<RefCell<u32>>) -> bool {
        let other = cell.clone();
        *mutex.lock().unwrap()
    }
}

/// Results: what is returned, and by which way.
pub mod results {
    use super::*;

    // recorded
    pub fn returned(a: u32) -> u32 {
        return a + 1;
    }

    // recorded
    pub fn returned_unit(a: u32) {
        if a == 1 {
            println!("one");
            return;
        }
        return;
    }

    // recorded
    pub fn let_and_return(text: &str) -> usize {
        let length = text.len();
        length
    }

    // recorded
    pub fn no_semicolon(items: &mut Vec<u32>) {
        items.clear()
    }

    // recorded
    pub fn unit_said(items: &mut Vec<u32>) -> () {
        items.clear();
        ()
    }

    // recorded
    pub fn unit_bound(items: &mut Vec<u32>) {
        let done = items.clear();
        drop(done);
        Some(items.clear());
    }

    // recorded
    pub fn wrapped(a: u32) -> Option<u32> {
        Some(a + 1)
    }

    // recorded
    pub fn wrapped_result(a: u32) -> Result<u32, Failure> {
        Ok(a + 1)
    }

    // recorded
    pub fn failed(text: &str) -> Result<u32, Failure> {
        if text.is_empty() {
            return Err(Failure::Empty);
        }
        let number: u32 = text.parse()?;
        Ok(number)
    }

    // recorded
    pub fn needless_question_mark(text: &str) -> Result<u32, std::num::ParseIntError> {
        Ok(text.parse::<u32>()?)
    }

    // recorded
    pub fn question_mark(item: Option<u32>) -> Option<u32> {
        if item.is_none() {
            return None;
        }
        let Some(value) = item else { return None };
        Some(value)
    }

    // recorded
    pub fn unit_error(a: u32) -> Result<u32, ()> {
        if a > 1 { Ok(a) } else { Err(()) }
    }

    // recorded
    pub fn large_error(a: u32) -> Result<u32, [u64; 40]> {
        if a > 1 { Ok(a) } else { Err([0; 40]) }
    }

    // recorded
    pub fn boxed_error(text: &str) -> Result<u32, Box<dyn std::error::Error>> {
        let number = text.parse::<u32>().map_err(|error| Box::new(error))?;
        if number > 10 {
            Err("large")?;
        }
        Ok(number)
    }

    // recorded
    pub fn option_of_option(a: u32) -> Option<Option<u32>> {
        if a == 0 { None } else { Some(Some(a)) }
    }

    // recorded
    pub fn panics_in_a_result(a: u32) -> Result<u32, Failure> {
        if a == 0 {
            panic!("zero");
        }
        assert!(a > 1);
        Ok(a)
    }

    // recorded
    pub fn unwraps_in_a_result(text: &str) -> Result<u32, Failure> {
        let number: u32 = text.parse().unwrap();
        if number == 3 { Err(Failure::Empty) } else { Ok(number) }
    }

    // recorded
    pub fn tail_match(item: Option<u32>) -> u32 {
        match item {
            Some(1) => 1,
            Some(2) => 1,
            Some(other) => other,
            None => 0,
        }
    }

    // recorded
    pub fn tail_match_bool(a: bool) -> u32 {
        match a {
            true => 1,
            false => 0,
        }
    }

    // recorded
    pub fn tail_else(a: u32) -> u32 {
        if a > 1 {
            return 1;
        } else {
            2
        }
    }

    // recorded
    pub fn tail_else_if(a: u32) -> u32 {
        if a != 1 {
            3
        } else {
            if a == 2 { 1 } else { 1 }
        }
    }

    // recorded
    pub fn needless_bool(a: u32) -> bool {
        if a > 3 { true } else { false }
    }

    // recorded
    pub fn tail_unsafe(pointer: *const u32) -> u32 {
        unsafe { *pointer }
    }

    // recorded
    pub fn tail_loop(mut a: u32) -> u32 {
        loop {
            a += 1;
            if a > 3 {
                break a;
            }
        }
    }

    // recorded
    pub fn tail_macro(a: u32) -> String {
        format!("{}", a)
    }

    // recorded
    pub fn tail_block(a: u32) -> u32 {
        {
            a
        }
    }

    // recorded
    pub fn tail_closure_call(a: u32) -> u32 {
        (|| a + 1)()
    }

    // recorded
    pub fn formatted_else(a: u32) -> u32 {
        let mut b = 0;
        if a == 1 {
            b = 1;
        } if a == 2 {
            b = 2;
        }
        b
    }

    // recorded
    pub fn conditions(items: &[u32]) -> u32 {
        if { let first = items[0]; first == 1 } { 1 } else { 2 }
    }

    // recorded
    pub fn let_else_tail(item: Option<u32>) -> u32 {
        let value = match item {
            Some(value) => value,
            None => return 0,
        };
        value
    }

    // recorded
    pub fn iterated(items: &[u32]) -> impl Iterator<Item = u32> + '_ {
        let doubled = items.iter().map(|item| item * 2);
        return doubled;
    }

    // recorded
    pub fn displayed(a: u32) -> impl Display {
        let text = a.to_string();
        text
    }

    // recorded
    pub fn never(text: String) -> ! {
        println!("{}", text);
        std::process::exit(1)
    }

    // recorded
    #[track_caller]
    pub fn tracked(items: Vec<u32>) -> u32 {
        return items[0];
    }
}

/// Statements and expressions.
pub mod bodies {
    use super::*;

    // recorded
    pub fn casts(a: u64, b: i32, c: f64) -> u32 {
        let d = a as u32;
        let e = b as u64;
        let f = c as i64 as f32;
        let g = e as u64;
        d + f as u32 + g as u32
    }

    // recorded
    pub fn arithmetic(a: i32, b: f32) -> f32 {
        let quotient = a / 2 % 3;
        let shifted = quotient << 2 + 1;
        b * 2.0 + 1.0 + shifted as f32
    }

    // recorded
    pub fn unwraps(item: Option<u32>, other: Result<u32, String>) -> u32 {
        item.unwrap() + other.expect("other")
    }

    // recorded
    pub fn indexed(items: &[u32], text: &str) -> u32 {
        println!("{}", &text[1..]);
        items[3]
    }

    // recorded
    pub fn printed(engine: &Engine) {
        println!("{:?}", engine);
        eprintln!("{engine:?}");
        print!("a\n");
        dbg!(engine);
    }

    // recorded
    pub fn panicked(a: u32) {
        match a {
            0 => todo!(),
            1 => unimplemented!(),
            2 => unreachable!(),
            _ => panic!(),
        }
    }

    // recorded
    pub fn range_loop(items: &[u32]) -> u32 {
        let mut sum = 0;
        for i in 0..items.len() {
            sum += items[i];
        }
        sum
    }

    // recorded
    pub fn counter_loop(items: &[u32]) -> usize {
        let mut count = 0;
        for item in items.iter() {
            println!("{count}: {item}");
            count += 1;
        }
        for (key, _) in &HashMap::from([(1, 2)]) {
            println!("{key}");
        }
        count
    }

    // recorded
    pub fn while_let(items: &mut Vec<u32>) {
        loop {
            match items.pop() {
                Some(_) => {}
                None => break,
            }
        }
    }

    // recorded
    pub fn infinite(mut a: u32) {
        loop {
            a = a.wrapping_add(1);
        }
    }

    // recorded
    pub fn breaks_at_once(items: &[u32]) -> u32 {
        for item in items {
            return *item;
        }
        0
    }

    // recorded
    pub fn collapsible(a: u32, b: u32) {
        if a == 1 {
            if b == 2 {
                println!("both");
            }
        }
        if let Some(c) = Some(a) { println!("{c}"); } else { }
    }

    // recorded
    pub fn single_match(item: Option<u32>) {
        match item {
            Some(value) => println!("{value}"),
            _ => {}
        }
    }

    // recorded
    pub fn clones(text: &String, number: u32) -> String {
        let copy = number.clone();
        let owned = text.to_string();
        let again = owned.clone();
        format!("{again}{copy}")
    }

    // recorded
    pub fn redundant_clone(items: Vec<u32>) -> Vec<u32> {
        let other = items.clone();
        other
    }

    // recorded
    pub fn closures(items: &[String]) -> Vec<usize> {
        let lengths = items.iter().map(|item| item.len()).collect::<Vec<_>>();
        lengths.iter().map(|length| usize::from(*length)).collect()
    }

    // recorded
    pub fn iterators(items: &[u32]) -> bool {
        let first = items.iter().filter(|item| **item > 1).next();
        first.is_some() && items.iter().find(|item| **item == 3).is_some() && items.len() == 0
    }

    // recorded
    pub fn unreachable_code(a: u32) -> u32 {
        return a;
        println!("never");
    }

    // recorded
    pub fn unused_things(a: u32) {
        let b = a;
        let mut c = 1;
        a + 1;
        Some(2);
        wrapped();
        std::fs::remove_file("x");
        let _ = std::fs::remove_file("y");
        let _d = a;
        use std::collections::BTreeMap;
    }

    #[must_use]
    // recorded
    pub fn wrapped() -> u32 {
        const LATE: u32 = 1;
        fn inner() -> u32 {
            LATE
        }
        let a = inner();
        static LATER: u32 = 2;
        a + LATER
    }

    // recorded
    pub fn dropped(text: &str, number: u32) {
        drop(text);
        drop(number);
        std::mem::forget(String::new());
        let _ = Mutex::new(1).lock();
        let mutex = Mutex::new(2);
        let _guard = mutex.lock();
    }

    // recorded
    pub fn literal(a: u64) -> u64 {
        a + 1000000u64 + 0xFFu64
    }

    // recorded
    pub fn compared(a: f32, b: f32, c: u32) -> bool {
        a == b && c >= 0 && c == c
    }

    // recorded
    pub fn swapped(a: &mut u32, b: &mut u32) {
        let c = *a;
        *a = *b;
        *b = c;
    }

    // recorded
    pub fn long_and_complex(a: u32) -> u32 {
        let mut sum = 0;
        for i in 0..a {
            if i % 2 == 0 {
                if i % 3 == 0 {
                    sum += 1;
                } else if i % 5 == 0 {
                    sum += 2;
                } else {
                    sum += 3;
                }
            }
            while sum > 100 {
                sum -= 10;
            }
            match sum {
                1 => sum += 1,
                2 => sum += 2,
                _ => {}
            }
        }
        sum
    }

    // recorded
    pub fn large_on_the_stack() -> usize {
        let buffer = [0_u8; 8192];
        let large = Large([0; 600]);
        buffer.len() + large.0.len()
    }

    // recorded
    pub fn glob(failure: &Failure) -> bool {
        use super::Failure::*;
        match failure {
            Empty => true,
            _ => false,
        }
    }

    // recorded
    pub fn strings(text: &str) -> String {
        let mut out = String::new();
        out.push_str("a");
        out += &format!("{}", text);
        out = out + "b";
        let character: Vec<char> = text.chars().collect::<Vec<char>>();
        out.push_str(&character.len().to_string());
        "x".to_string() + &out
    }

    // recorded
    pub fn let_it_be(item: Option<u32>) -> u32 {
        if let Some(a) = item {
            a
        } else {
            0
        }
    }

    // recorded
    pub fn manual(a: Option<u32>, b: &[u32]) -> Option<u32> {
        match a {
            Some(a) => Some(a + 1),
            None => None,
        }
    }

    // recorded
    pub fn absolute() -> std::collections::BTreeMap<u32, u32> {
        std::collections::BTreeMap::new()
    }

    // recorded
    pub fn locked(mutex: &Mutex<Vec<u32>>) -> usize {
        let guard = mutex.lock().unwrap();
        let length = guard.len();
        length
    }

    // recorded
    pub fn scrutinee(mutex: &Mutex<Vec<u32>>) -> u32 {
        match mutex.lock().unwrap().len() {
            0 => 1,
            _ => 2,
        }
    }

    // recorded
    pub fn clean(items: &[u32]) -> Option<&u32> {
        items.first()
    }
}

/// Functions that call themselves.
pub mod recursion {
    // recorded
    pub fn for_ever(a: u32) -> u32 {
        for_ever(a)
    }

    // recorded
    pub fn only_passed_on(a: u32, b: u32) -> u32 {
        if a == 0 { 0 } else { only_passed_on(a - 1, b) }
    }

    // recorded
    pub fn factorial(n: u64) -> u64 {
        if n == 0 {
            return 1;
        }
        n * factorial(n - 1)
    }
}

/// Methods with all receivers.
pub mod methods {
    use super::*;

    impl Engine {
        // recorded
        pub fn new(name: &str) -> Option<Self> {
            Some(Self { calls: 0, name: name.to_string(), weights: vec![] })
        }

        // recorded
        pub fn no_receiver_used(&self, a: u32) -> u32 {
            a + 1
        }

        // recorded
        pub fn mut_for_nothing(&mut self) -> usize {
            self.calls
        }

        // recorded
        pub fn count(&mut self) -> usize {
            self.calls += 1;
            return self.calls;
        }

        // recorded
        pub fn name(&self) -> &String {
            &self.name
        }

        // recorded
        pub fn len(&self) -> usize {
            self.weights.len()
        }

        // recorded
        pub fn to_string(&self) -> String {
            self.name.clone()
        }

        // recorded
        pub fn into_name(&self) -> String {
            self.name.to_owned()
        }

        // recorded
        pub fn is_ready(self) -> bool {
            self.calls > 0
        }

        // recorded
        pub fn consumed(self) -> String {
            self.name
        }

        // recorded
        pub fn consumed_mut(mut self) -> Self {
            self.calls = 0;
            self
        }

        // recorded
        pub fn boxed(self: Box<Self>) -> usize {
            self.calls
        }

        // recorded
        pub fn shared(self: Rc<Self>) -> usize {
            self.calls
        }

        // recorded
        pub fn pinned(self: Pin<&mut Self>) -> usize {
            self.calls
        }

        // recorded
        pub fn add(self, other: Self) -> Self {
            Self { calls: self.calls + other.calls, ..self }
        }

        // recorded
        pub fn recursive_self(&self, depth: u32) -> u32 {
            if depth == 0 { 1 } else { self.recursive_self(depth - 1) }
        }

        // recorded
        pub fn says_its_type(&self) -> Engine {
            Engine { calls: self.calls, name: String::new(), weights: Vec::new() }
        }

        // recorded
        pub fn weights_mut(&self, weights: &mut u32) -> &mut u32 {
            unsafe { &mut *(weights as *mut u32) }
        }

        // recorded
        pub fn iter(&self) -> std::slice::Iter<'_, f32> {
            self.weights.iter()
        }

        // recorded
        fn private_and_dead(&self) -> u32 {
            1
        }
    }

    impl Drop for Large {
        // recorded
        fn drop(&mut self) {
            println!("{}", self.0.len());
        }
    }

    impl Iterator for Engine {
        type Item = u32;

        // recorded
        fn next(&mut self) -> Option<u32> {
            self.calls += 1;
            Some(self.calls as u32)
        }
    }

    impl PartialEq<u32> for Engine {
        // recorded
        fn eq(&self, second: &u32) -> bool {
            self.calls as u32 == *second
        }

        // recorded
        fn ne(&self, second: &u32) -> bool {
            !(self == second)
        }
    }

    /// A trait.
    pub trait Score {
        /// Scores.
        fn score(&self, answers: &[String], weight: f64) -> f64;

        // recorded
        fn default_method(&self, a: u32) -> u32 {
            return a;
        }

        // recorded
        fn default_unused(&self, text: String) {}
    }

    impl Score for Engine {
        // recorded
        fn score(&self, texts: &[String], weight: f64) -> f64 {
            texts.len() as f64 * weight
        }
    }
}

/// Async functions, and what returns a future.
pub mod futures {
    use super::*;

    // recorded
    pub async fn nothing_awaited(a: u32) -> u32 {
        a + 1
    }

    // recorded
    pub async fn unit() {}

    // recorded
    pub async fn awaited(text: String) -> usize {
        nothing_awaited(1).await;
        return text.len();
    }

    // recorded
    pub async fn unit_without_semicolon() {
        unit().await
    }

    // recorded
    pub async fn failed(text: &str) -> Result<u32, Failure> {
        let number: u32 = text.parse()?;
        unit().await;
        Ok(number)
    }

    // recorded
    pub async fn locked(mutex: &Mutex<u32>) -> u32 {
        let guard = mutex.lock().unwrap();
        unit().await;
        *guard
    }

    // recorded
    pub async fn borrowed(cell: &RefCell<u32>) -> u32 {
        let borrowed = cell.borrow();
        unit().await;
        *borrowed
    }

    // recorded
    pub async fn not_send(shared: Rc<u32>) -> u32 {
        unit().await;
        *shared
    }

    // recorded
    pub async fn large() -> usize {
        let buffer = [0_u8; 1024];
        unit().await;
        buffer.len()
    }

    // recorded
    pub async fn awaits_a_large_one() -> usize {
        large().await
    }

    // recorded
    pub async fn unused(a: u32, mut b: u32) {
        let c = 1;
        unit();
        unit().await;
    }

    // recorded
    pub async fn patterns((a, b): (u32, u32), _: u32, _c: &str) -> u32 {
        unit().await;
        a + b
    }

    // recorded
    pub async fn panics(item: Option<u32>) -> u32 {
        unit().await;
        item.unwrap() + item.expect("item")
    }

    // recorded
    pub async fn let_and_return() -> u32 {
        let a = nothing_awaited(1).await;
        a
    }

    // recorded
    pub async fn tail_match(item: Option<u32>) -> u32 {
        match item {
            Some(a) => nothing_awaited(a).await,
            None => 0,
        }
    }

    // recorded
    pub async fn tail_else(a: u32) -> u32 {
        if a == 0 {
            return 1;
        } else {
            unit().await;
            2
        }
    }

    // recorded
    pub async fn looped(items: &Vec<u32>) -> u32 {
        let mut sum = 0;
        for i in 0..items.len() {
            unit().await;
            sum += items[i];
        }
        sum
    }

    // recorded
    pub async fn for_ever(a: u32) -> u32 {
        Box::pin(for_ever(a)).await
    }

    // recorded
    pub fn manual(a: u32) -> impl Future<Output = u32> {
        async move { a + 1 }
    }

    // recorded
    pub fn opaque(text: String) -> impl Future<Output = usize> {
        println!("{}", text);
        async move { return text.len() }
    }

    // recorded
    pub fn boxed(a: u32) -> Pin<Box<dyn Future<Output = Result<u32, String>> + Send>> {
        return Box::pin(async move { Ok(a + 1) });
    }

    impl Engine {
        // recorded
        pub async fn generate(&mut self, prompt: String) -> usize {
            self.calls += 1;
            unit().await;
            prompt.len()
        }

        // recorded
        pub async fn without_self(&self) -> u32 {
            unit().await;
            1
        }

        // recorded
        async fn dead(self) -> u32 {
            1
        }
    }

    /// A trait.
    pub trait Generate {
        /// Generates.
        fn generate_one(&self, prompt: &str) -> impl Future<Output = usize> + Send;
    }

    impl Generate for Engine {
        // recorded
        async fn generate_one(&self, prompt: &str) -> usize {
            let length = prompt.len();
            length
        }
    }
}

/// `unsafe` and `extern`.
pub mod dangerous {
    // recorded
    pub unsafe fn undocumented(pointer: *const u32) -> u32 {
        *pointer
    }

    /// Reads.
    ///
    /// # Safety
    ///
    /// The pointer is good.
    // recorded
    pub unsafe fn documented(pointer: *const u32) -> u32 {
        // SAFETY: it is good.
        unsafe { *pointer }
    }

    // recorded
    pub unsafe fn needlessly() -> u32 {
        unsafe { 1 }
    }

    // recorded
    pub unsafe fn many(pointer: *mut u32) {
        unsafe {
            *pointer = 1;
            *pointer.add(1) = *pointer;
        }
    }

    // recorded
    pub unsafe fn calls(pointer: *const u32) -> u32 {
        documented(pointer)
    }

    // recorded
    pub async unsafe fn waits(pointer: *const u32) -> u32 {
        *pointer
    }

    // recorded
    pub fn dereferences(pointer: *const u32) -> u32 {
        unsafe { documented(pointer) }
    }

    // recorded
    pub extern "C" fn foreign(a: u32, text: String) -> u32 {
        return a;
    }

    // recorded
    #[unsafe(no_mangle)]
    pub extern "C" fn exported_to_c(a: Option<String>) {}

    // recorded
    #[inline(always)]
    pub fn inlined(a: u32) -> u32 {
        a
    }
}

/// Lint attributes of the user, and what they are about.
pub mod attributes {
    // recorded
    fn dead(a: u32) -> u32 {
        a
    }

    // recorded
    async fn dead_async() {}

    // recorded
    fn dead_calls_itself(a: u32) -> u32 {
        if a == 0 { 0 } else { dead_calls_itself(a - 1) }
    }

    #[must_use]
    // recorded
    pub fn of_use() -> u32 {
        1
    }

    // recorded
    #[must_use = "wait for it"]
    pub async fn of_use_later() -> u32 {
        1
    }

    #[must_use]
    // recorded
    pub fn of_use_twice() -> Result<u32, String> {
        Ok(1)
    }

    #[must_use]
    // recorded
    pub fn of_no_use() {}

    /// Old.
    #[deprecated(note = "old")]
    // recorded
    pub fn old() -> u32 {
        1
    }

    // recorded
    pub fn uses() {
        of_use();
        of_use_later();
        of_use_twice();
        old();
    }

    // recorded
    pub async fn uses_later() {
        of_use();
        of_use_later().await;
        of_use_twice();
        let _ = old();
    }

    // recorded
    #[expect(clippy::print_stdout, reason = "told")]
    pub fn expected() {
        println!("told");
    }

    #[expect(clippy::print_stdout)]
    // recorded
    pub fn expected_in_vain() {}

    #[expect(unused_variables, clippy::needless_return, clippy::implicit_return, clippy::arithmetic_side_effects)]
    // recorded
    pub fn expected_many(a: u32) -> u32 {
        return 1;
    }

    #[expect(clippy::needless_pass_by_value)]
    // recorded
    pub fn expected_by_value(text: String) -> usize {
        text.len()
    }

    #[expect(clippy::unused_async)]
    // recorded
    pub async fn expected_unused_async() {}

    #[expect(dead_code)]
    // recorded
    fn expected_dead() {}

    #[expect(unused_mut, unused_assignments, unused_variables)]
    // recorded
    pub async fn expected_unused(mut a: u32) {
        let mut b = 1;
        b = 2;
    }

    #[allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction, missing_docs)]
    // recorded
    pub fn allowed(text: String) -> usize {
        return text.len();
    }

    // recorded
    #[allow(unused_variables, unused_mut)]
    pub fn allowed_unused(mut a: u32, b: u32) {
        let c = 1;
    }

    // recorded
    pub fn allowed_within(a: u32) -> u32 {
        #![allow(clippy::arithmetic_side_effects)]
        #[expect(clippy::needless_return)]
        return a + 1;
    }

    // recorded
    #[allow(clippy::no_such_lint, no_such_lint)]
    pub fn unknown() {}

    // recorded
    #[cfg_attr(all(), allow(clippy::missing_const_for_fn))]
    pub fn under_cfg(#[cfg(any())] missing: u32, #[allow(unused_variables)] a: u32) {}

    #[allow(dead_code)]
    #[inline]
    // recorded
    fn kept_though_dead(unused: u32) {}

    /// Documented.
    ///
    /// # Errors
    ///
    /// Never.
    // recorded
    pub fn documented() -> Result<(), String> {
        Ok(())
    }

    /// Documented.
    // recorded
    pub fn documented_in_part(text: &str) -> Result<u32, String> {
        text.parse().map_err(|_| String::new())
    }
}

/// Annotations that say more.
pub mod arguments {
    use super::*;

    // recorded, attributes(size = texts.len(), length = |out| out.len()), model = engine.name.as_str(), err = chain
    pub fn many(texts: &[String], engine: &Engine, a: u32) -> Result<String, std::io::Error> {
        const LATE: u32 = 1;
        use std::io::Error;
        println!("{}{}", texts[0], engine.calls);
        return Err(Error::other("no"));
    }

    // recorded, tokens(input = prompts, output = |out| out.iter().map(|text| text.len())), step = step
    pub async fn counted(prompts: &[u32], step: u64) -> Vec<String> {
        #[derive(Debug)]
        struct Within;
        println!("{:?}{}{}", Within, prompts[0], step);
        vec![]
    }

    // recorded, tokens(output = |line| line.len())
    pub fn lines<'a>(text: &'a str) -> impl Stream<Item = &'a str> + 'a {
        let lines: Vec<&'a str> = text.lines().collect::<Vec<&str>>();
        return Lines(lines.into_iter());
    }

    // recorded
    pub fn boxed_lines(text: &'static str) -> Pin<Box<dyn Stream<Item = &'static str>>> {
        return Box::pin(Lines(text.lines().map(|line| line).collect::<Vec<_>>().into_iter()));
    }

    struct Lines<'a>(std::vec::IntoIter<&'a str>);

    impl<'a> Stream for Lines<'a> {
        type Item = &'a str;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<&'a str>> {
            Poll::Ready(self.0.next())
        }
    }

    // recorded
    pub async fn for_ever(text: String) -> ! {
        loop {
            std::future::pending::<()>().await;
        }
    }

    // recorded, attributes(size = text.parse::<u32>().ok(), is_empty = !text.is_empty(), length = format!("{}", text.len()))
    pub fn parsed(text: &String) -> Option<u32> {
        text.parse().ok()
    }

    // recorded, attributes(size = |out| out.len()), kind = client, bucket = idle, err = message
    pub fn later<'a>(text: &'a str) -> impl Future<Output = Result<&'a str, Failure>> + 'a {
        async move { return Ok(text) }
    }

    // recorded, attributes(calls = engine.calls), umbrella
    pub fn guarded(engine: &Engine, text: String) -> impl Fn(u32) -> usize {
        let calls = engine.calls;
        move |number| calls + text.len() + number as usize
    }

    // recorded, attributes(calls = self_calls)
    pub fn higher<'a>(self_calls: u32, f: &'a dyn for<'b> Fn(&'b str) -> &'b str) -> Box<dyn for<'b> Fn(&'b str) -> &'b str + 'a> {
        if self_calls == 1 {
            return Box::new(str::trim);
        }
        Box::new(|text| f(text))
    }

    // recorded
    pub fn opaque_within(items: Vec<u32>) -> Result<impl Iterator<Item = u32>, Failure> {
        if items.is_empty() {
            return Err(Failure::Empty);
        }
        Ok(items.into_iter())
    }

    // recorded
    #[deny(clippy::unused_self)]
    #[warn(clippy::needless_return)]
    pub async fn stepped(step: &'static str) -> &'static str {
        return step;
    }
}

/// Functions that macros write.
pub mod macros {
    macro_rules! phases {
        ($($name:ident($argument:ident) $body:block)+) => {
            $(
                // recorded
                pub fn $name($argument: u32) -> u32 $body
            )+
        };
    }

    phases! {
        first(a) { return a + 1; }
        second(b) { let c = first(b); c }
    }

    macro_rules! whole {
        ($item:item) => {
            $item
        };
    }

    whole! {
        // recorded
        pub fn item(text: String) -> usize {
            return text.len();
        }
    }
}
