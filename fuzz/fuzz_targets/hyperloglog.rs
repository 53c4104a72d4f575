//! A HyperLogLog that a client wrote: the first byte chooses the encoding, the rest are its registers, then its own
//! bytes are added to it. Sound or corrupt, it never causes a panic, and its count does not depend on its encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::value::hyperloglog::{self, Encoding, Registers};

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let mut bytes = hyperloglog::empty();
    bytes.truncate(16);
    bytes[4] = first & 1;
    bytes.extend_from_slice(rest);
    if first & 1 == 0 {
        bytes.resize(12_304, 0);
    }
    assert!(hyperloglog::encoding(&bytes).is_some());
    let sound = hyperloglog::count(&bytes).is_ok();
    assert_eq!(sound, Registers::new().absorb(&bytes).is_ok());
    assert_eq!(sound, hyperloglog::encoding(&bytes) == Some(Encoding::Dense) || hyperloglog::describe(&bytes).is_ok());
    for element in rest.chunks(3) {
        let added = hyperloglog::add(&mut bytes, element, 3_000);
        assert!(!sound || added.is_ok());
    }
    if sound {
        let count = hyperloglog::count(&bytes);
        hyperloglog::make_dense(&mut bytes).expect("it is sound");
        assert_eq!(hyperloglog::count(&bytes), count);
    }
});
