//! Names in certificates, which are bytes of a client. What is found stands in the certificate, and says nothing behind a zero.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::base::certificate::{common_name, uris};

fuzz_target!(|data: &[u8]| {
    for name in uris(data).into_iter().chain(common_name(data)) {
        assert!(!name.is_empty() && !name.contains(&0));
        assert!(data.as_ptr_range().contains(&name.as_ptr()));
    }
});
