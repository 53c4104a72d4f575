//! SCRIPT LINT on any text: it terminates, within bounds, and reports only lines that exist.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::command;
use tidegate::lint::lint;

fuzz_target!(|data: &[u8]| {
    let lines = 1 + data.iter().filter(|&&byte| byte == b'\n').count();
    match lint(data, command::table(), &|name| name.len() > 3) {
        Ok(warnings) => assert!(warnings.iter().all(|warning| (1..=lines).contains(&(warning.line as usize)))),
        Err(error) => assert!((1..=lines).contains(&(error.line as usize))),
    }
});
