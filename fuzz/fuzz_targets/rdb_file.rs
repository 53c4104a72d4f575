//! A whole RDB file from an untrusted source: damaged or hostile, it never causes a panic or an allocation of memory
//! that it only claims. Its values are handed to the same code that reads payloads of RESTORE.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::keyspace::ValueLimits;
use tidegate::rdb::file::{Reader, Record};
use tidegate::rdb::{self, file::Writer};

fuzz_target!(|data: &[u8]| {
    let limits = ValueLimits::default();
    let mut writer = Writer::new(Vec::new(), rdb::VERSION_OF_EXPIRING_FIELDS);
    // The first byte chooses the magic, so that the fuzzer need not find it.
    let Some((first, body)) = data.split_first() else { return };
    let magic: &[u8] = [&b"REDIS0006"[..], b"REDIS0012", b"VALKEY080", b""][usize::from(first % 4)];
    let Ok(mut reader) = Reader::new(std::io::Cursor::new([magic, body].concat())) else { return };
    let mut keys = 0;
    while let Ok(record) = reader.next_record() {
        match record {
            Record::Key(record) => {
                let Ok(value) = rdb::load_value(record.dialect, record.code, record.value, &limits) else { continue };
                let payload = rdb::dump(value.as_ref());
                let (_, value) = rdb::open(&payload).expect("it was just dumped");
                writer.key(record.db, &record.key, record.expires_at_ms, value).expect("room in memory");
                keys += 1;
            }
            Record::End => break,
            _ => {}
        }
    }
    let written = writer.finish().expect("room in memory");
    let mut again = Reader::new(std::io::Cursor::new(written)).expect("it was just written");
    for _ in 0..keys {
        assert!(matches!(again.next_record(), Ok(Record::Key(_))));
    }
    assert!(matches!(again.next_record(), Ok(Record::End)));
});
