//! What does the compiler say? Each case is named after its mistake, or after what it shows.
//!
//! After a change of a message: `TRYBUILD=overwrite cargo test -p lens-tests --test ui`, and read
//! every changed `.stderr` as the user who made the mistake.

#[test]
fn mistakes_are_told_on_the_users_token_and_good_code_passes() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui/pass/*.rs");
    cases.compile_fail("ui/fail/*.rs");
}
