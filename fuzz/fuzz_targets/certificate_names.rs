//! Names in certificates, which are bytes from a client. A name that is found occurs in the certificate and contains no
//! zero byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::base::certificate::{common_name, uris};

fuzz_target!(|data: &[u8]| {
    for name in uris(data).into_iter().chain(common_name(data)) {
        assert!(!name.is_empty() && !name.contains(&0));
        assert!(data.as_ptr_range().contains(&name.as_ptr()));
    }
});
