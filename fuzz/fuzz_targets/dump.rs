//! What a client gives to RESTORE: type and value, to which version and checksum are added. Sound or corrupt, it never panics
//! or takes memory that it only claims; and what loads can be dumped and loaded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::keyspace::ValueLimits;
use tidegate::rdb;

fuzz_target!(|data: &[u8]| {
    let limits = ValueLimits::default();
    let mut payload = data.to_vec();
    rdb::seal(&mut payload, rdb::VERSION);
    let Ok(value) = rdb::load(&payload, &limits) else { return };
    let again = rdb::load(&rdb::dump(&value), &limits).expect("it was just dumped");
    assert_eq!(again.type_name(), value.type_name());
    assert_eq!(rdb::dump(&again).len(), rdb::dump(&value).len());
});
