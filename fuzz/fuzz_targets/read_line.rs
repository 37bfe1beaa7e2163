//! Whatever stands in a line, it is read or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    if let Err(error) = lens_runtime::files::read_line(line) {
        assert!(!error.to_string().is_empty());
    }
});
