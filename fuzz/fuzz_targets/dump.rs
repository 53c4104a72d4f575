//! The payload that a client gives to RESTORE: type and value, to which version and checksum are added. Sound or
//! corrupt, it never causes a panic or an allocation of memory that it only claims; and a value that loads can be
//! dumped and loaded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::keyspace::ValueLimits;
use tidegate::rdb;

fuzz_target!(|data: &[u8]| {
    let limits = ValueLimits::default();
    let mut payload = data.to_vec();
    rdb::seal(&mut payload, rdb::VERSION);
    let Ok(value) = rdb::load(&payload, &limits) else { return };
    let dump = rdb::dump(value.as_ref());
    let again = rdb::load(&dump, &limits).expect("it was just dumped");
    assert_eq!(again.as_ref().type_name(), value.as_ref().type_name());
    assert_eq!(rdb::dump(again.as_ref()).len(), dump.len());
});
