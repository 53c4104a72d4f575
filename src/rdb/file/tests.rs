use std::collections::BTreeMap;
use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::base::crc::crc64;
use crate::keyspace::ValueLimits;
use crate::keyspace::any_value::{Value, ValueRef};
use crate::rdb::tests::{content, samples, stream_of_version};
use crate::rdb::{self, Dialect};

/// The contents of a file, in words.
fn read(bytes: &[u8]) -> Result<Vec<String>, FileError> {
    let mut reader = Reader::new(Cursor::new(bytes))?;
    let mut seen = Vec::new();
    loop {
        seen.push(match reader.next_record()? {
            Record::End => return Ok(seen),
            Record::Aux { name, text } => format!("aux {} {}", name.escape_ascii(), text.escape_ascii()),
            Record::Keys { db, keys } => format!("keys of {db}: {keys}"),
            Record::Library(text) => format!("library {}", text.escape_ascii()),
            Record::ModuleAux { module } => format!("module {module}"),
            Record::Key(record) => {
                let mut payload = Vec::new();
                record.payload(&mut payload);
                // The values in a file and the payloads of DUMP are read by the same code.
                let value = rdb::load(&payload, &ValueLimits::default());
                let direct = rdb::load_value(record.dialect, record.code, record.value, &ValueLimits::default());
                assert_eq!(value.is_ok(), direct.is_ok());
                let value = value.map_or_else(|error| error.to_string(), |value| show(value.as_ref()));
                let about = (record.expires_at_ms, record.idle_s);
                format!("{}:{} {value} {about:?}", record.db, record.key.escape_ascii())
            }
        });
    }
}

fn show(value: ValueRef<'_>) -> String {
    let dump = |value: ValueRef<'_>| rdb::dump(value).escape_ascii().to_string();
    match value {
        ValueRef::Hash(hash) => {
            let mut pairs: Vec<String> = hash
                .iter()
                .map(|(field, value)| {
                    let at_ms = hash.deadlines().and_then(|deadlines| deadlines.at(&field.to_vec()));
                    let until = at_ms.map_or(String::new(), |at_ms| format!("@{at_ms}"));
                    format!("{}={}{until}", field.to_vec().escape_ascii(), value.to_vec().escape_ascii())
                })
                .collect();
            pairs.sort();
            pairs.join(",")
        }
        ValueRef::List(list) => list.iter().map(|item| item.escape_ascii().to_string()).collect::<Vec<_>>().join(","),
        ValueRef::ZSet(zset) => zset
            .iter()
            .map(|(member, score)| format!("{}={score}", member.escape_ascii()))
            .collect::<Vec<_>>()
            .join(","),
        ValueRef::Set(set) => {
            let mut members: Vec<_> = set.iter().map(|member| member.to_vec().escape_ascii().to_string()).collect();
            members.sort();
            members.join(",")
        }
        value => dump(value),
    }
}

/// A file of these items, with its checksum.
fn file(magic: &str, items: &[&[u8]]) -> Vec<u8> {
    let mut bytes = magic.as_bytes().to_vec();
    items.iter().for_each(|item| bytes.extend_from_slice(item));
    bytes.push(opcode::END);
    bytes.extend_from_slice(&crc64(&bytes).to_le_bytes());
    bytes
}

/// The listpack of these short texts.
fn listpack(texts: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for text in texts {
        body.push(0x80 | text.len() as u8);
        body.extend_from_slice(text);
        body.push(text.len() as u8 + 1);
    }
    let mut bytes = (body.len() as u32 + 7).to_le_bytes().to_vec();
    bytes.extend_from_slice(&(texts.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes.push(0xff);
    bytes
}

/// A key of one letter with a value of this type.
fn key(code: u8, name: u8, value: &[u8]) -> Vec<u8> {
    [&[code, 1, name][..], value].concat()
}

/// An RDB string of up to 63 bytes.
fn string(text: &[u8]) -> Vec<u8> {
    [&[text.len() as u8][..], text].concat()
}

/// A value that is refused for its length alone: the bytes behind the length are not read, and no memory is allocated.
#[test]
fn a_value_above_512_mib_is_named() {
    let of_length = |bytes: u32| {
        let head = [&[0, 1, b'k', 0x80][..], &bytes.to_be_bytes()].concat();
        read(&file("REDIS0011", &[&head])).unwrap_err().to_string()
    };
    let most = crate::rdb::limits::RDB_VALUE_MAX_BYTES as u32;
    // The head of the string counts, too.
    let refused = of_length(most - 4);
    assert!(
        refused.contains("\"k\"") && refused.contains("offset 9") && refused.contains("536870848 bytes"),
        "{refused}"
    );
    assert!(!of_length(most - 5).contains("more than"), "one that fits is cut off here");
}

#[test]
fn streams_of_every_version_end_where_they_end() {
    for version in [4, 5] {
        let stream = stream_of_version(version);
        let bytes = file("REDIS0014", &[&key(stream[0], b's', &stream[1..]), &key(0, b'k', &string(b"v"))]);
        let seen = read(&bytes).expect("it is whole");
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(!seen[0].contains("Bad data"), "{seen:?}");
    }
}

#[test]
fn files_of_old_versions_are_read() {
    // Redis 2.8 (RDB 6): deadlines in seconds, zipmaps, ziplists, scores as text, integers and packed texts as strings.
    let ziplist = b"\x0f\x0f\0\0\0\x0c\0\0\0\x02\0\0\xf2\x02\xf3\xff";
    let zipmap = b"\x0c\x02\x01a\x01\0x\x01b\x01\0y\xff";
    let old = file(
        "REDIS0006",
        &[
            &[opcode::SELECT_DB, 0],
            &[&[opcode::EXPIRES_AT_S][..], &1_700_000_000i32.to_le_bytes(), &key(0, b's', b"\xc1\x39\x30")].concat(),
            &key(0, b'p', b"\xc3\x05\x0a\x00a\xe0\x00\x00"),
            &key(10, b'l', &ziplist[..]),
            &key(9, b'h', zipmap),
            &[opcode::SELECT_DB, 0x40, 100],
            &key(3, b'z', b"\x03\x01a\x031.5\x01b\xfe\x01c\xff"),
            &key(1, b'L', b"\x02\x01x\xc0\x05"),
            &key(2, b'S', b"\x02\x01x\x01y"),
            &key(4, b'H', b"\x01\x01f\x01v"),
            &key(11, b'i', &string(b"\x02\0\0\0\x02\0\0\0\x01\0\x02\0")),
        ],
    );
    let string_5 = |text: &[u8]| {
        rdb::dump(Value::String(crate::value::string::StringValue::new(text)).as_ref()).escape_ascii().to_string()
    };
    assert_eq!(
        read(&old).unwrap(),
        [
            format!("0:s {} (Some(1700000000000), None)", string_5(b"12345")),
            format!("0:p {} (None, None)", string_5(b"aaaaaaaaaa")),
            "0:l 1,2 (None, None)".to_owned(),
            "0:h a=x,b=y (None, None)".to_owned(),
            "100:z c=-inf,a=1.5,b=inf (None, None)".to_owned(),
            "100:L x,5 (None, None)".to_owned(),
            "100:S x,y (None, None)".to_owned(),
            "100:H f=v (None, None)".to_owned(),
            "100:i 1,2 (None, None)".to_owned(),
        ]
    );
}

#[test]
fn a_type_code_can_mean_another_type_in_valkey() {
    let at_ms = 1_999_999_999_999i64;
    let pairs = [&b"\x02\x01f\x01v"[..], &at_ms.to_le_bytes(), b"\x01g\x01w", &(-1i64).to_le_bytes()].concat();
    let valkey = file("VALKEY080", &[&key(22, b'h', &pairs)]);
    assert_eq!(read(&valkey).unwrap(), [format!("0:h f=v@{at_ms},g=w (None, None)")]);
    // In a release candidate of Redis 7.4, this code had deadlines as lengths, before each field.
    let at = [&b"\x02\x81"[..], &(at_ms as u64).to_be_bytes(), b"\x01f\x01v", b"\0\x01g\x01w"].concat();
    assert_eq!(
        read(&file("REDIS0012", &[&key(22, b'h', &at)])).unwrap(),
        [format!("0:h f=v@{at_ms},g=w (None, None)")]
    );
    let packed = listpack(&[b"f", b"v", b"0"]);
    let preview = file("REDIS0012", &[&key(23, b'h', &string(&packed))]);
    assert_eq!(read(&preview).unwrap(), ["0:h f=v (None, None)"]);
    let released = file("REDIS0012", &[&key(25, b'h', &[&[0; 8][..], &string(&packed)].concat())]);
    assert_eq!(read(&released).unwrap(), ["0:h f=v (None, None)"]);
    for (magic, code) in [("VALKEY080", 23), ("REDIS0014", 28), ("REDIS0012", 8), ("REDIS0012", 22 | 0x80)] {
        let error = read(&file(magic, &[&key(code, b'k', b"")])).unwrap_err().to_string();
        assert!(
            error.contains("\"k\"") && error.contains(&format!("type {code}")) && error.contains("offset 9"),
            "{error}"
        );
    }
}

#[test]
fn items_other_than_keys_are_understood_or_skipped() {
    // The module type "ReJSON-RL" in its version 3.
    let module = b"\x81\x45\xe2\x52\x38\xdf\xbe\x44\x5c".as_slice();
    let all = file(
        "REDIS0012",
        &[
            b"\xfa\x09redis-ver\x058.0.6",
            b"\xfa\x05ctime\xc2\x00\x01\x02\x03",
            b"\xf5\x04text",
            &[&b"\xf7"[..], module, b"\x02\x02\x01\x05\x02\x07\x03abcd\x04abcdefgh\x05\x01x\0"].concat(),
            b"\xfe\x03\xfb\x02\x01",
            b"\xf4\x05\x01\x00",
            &[&b"\xf9\x07\xf8\x0a\xfc"[..], &5i64.to_le_bytes(), &key(0, b'a', b"\x01x")].concat(),
            &key(2, b'b', b"\x01\x01m"),
        ],
    );
    let seen = read(&all).unwrap();
    assert_eq!(seen[..3], ["aux redis-ver 8.0.6", "aux ctime 50462976", "library text"]);
    assert!(seen[3].starts_with("module ") && seen[3].len() == "module ".len() + 9, "{}", seen[3]);
    assert_eq!(seen[4], "keys of 3: 2");
    assert!(seen[5].starts_with("3:a ") && seen[5].ends_with("(Some(5), Some(10))"), "{}", seen[5]);
    assert_eq!(seen[6], "3:b m (None, None)", "attributes of one key do not carry over to the next");

    let valkey = file("VALKEY080", &[b"\xf3\x03job\x02\x01\x02\x05\x40\x64", &key(2, b'b', b"\x01\x01m")]);
    assert_eq!(read(&valkey).unwrap(), ["0:b m (None, None)"]);

    let value = [module, b"\x05\x01x\0"].concat();
    let error = read(&file("REDIS0012", &[&key(7, b'm', &value)])).unwrap_err().to_string();
    assert!(error.contains("\"m\"") && error.contains("module type"), "{error}");
    let preview = read(&file("REDIS0010", &[b"\xf6\x01x"])).unwrap_err();
    assert!(matches!(preview, FileError::Damaged { offset: 9, .. }), "{preview}");
}

#[test]
fn magic_version_and_checksum_are_checked() {
    for (start, wanted) in [
        ("", "begins with \"\""),
        ("*1\r\n$4\r\nPING\r\n", "not in RDB format"),
        ("REDIS", "cut off"),
        ("REDIS00x1", "not a number"),
        ("REDIS0000", "not supported"),
        ("REDIS0099", "REDIS 99"),
        ("REDIS0080", "REDIS 80"),
        ("VALKEY011", "VALKEY 11"),
        ("VALKEY081", "VALKEY 81"),
        ("REDIS0011", "cut off at offset 9"),
    ] {
        let error = read(start.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{start}: {error}");
    }
    assert_eq!(read(b"REDIS0004\xff").unwrap(), [""; 0], "it had no checksum");
    assert_eq!(read(b"REDIS0011\xff\0\0\0\0\0\0\0\0").unwrap(), [""; 0], "none was made");
    let wrong = read(b"REDIS0011\xff\x01\0\0\0\0\0\0\0").unwrap_err();
    assert!(matches!(wrong, FileError::Checksum { offset: 10 }), "{wrong}");
}

#[test]
fn declared_lengths_are_not_trusted() {
    let claims = |code: u8, value: &[u8]| {
        let bytes = [b"REDIS0011", &key(code, b'k', value)[..]].concat();
        read(&bytes).unwrap_err()
    };
    let much = b"\x81\0\0\0\x10\0\0\0\0";
    for code in (0..=25).filter(|code| !matches!(code, 6..=8)) {
        let error = claims(code, &[&much[..], b"xxxxxxxxxxxx"].concat());
        let is_reported =
            matches!(error, FileError::CutOff { .. } | FileError::TooLong { .. } | FileError::Damaged { .. });
        assert!(is_reported, "{code}: {error}");
    }
    let error = read(&[&b"REDIS0011\0"[..], much, b"x"].concat()).unwrap_err();
    assert!(matches!(error, FileError::Damaged { what: "a name or text is too long", .. }), "{error}");
}

/// A small file with every type that is written, and all other kinds of items.
fn written() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), rdb::VERSION_OF_EXPIRING_FIELDS);
    writer.aux("redis-ver", "8.0.0").unwrap();
    writer.library(b"#!lua name=x").unwrap();
    let mut by_type: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    for payload in samples(400).iter().map(|value| rdb::dump(value.as_ref())) {
        let shortest = by_type.entry(payload[0]).or_insert_with(|| payload.clone());
        if payload.len() < shortest.len() && payload.len() > 60 {
            *shortest = payload;
        }
    }
    assert!(by_type.len() >= 9, "{:?}", by_type.keys());
    for (code, payload) in &by_type {
        let (_, value) = rdb::open(payload).unwrap();
        writer.key(u64::from(code % 4), &[b'k', *code], (code % 3 == 0).then_some(1_999_999_999_999), value).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn files_written_here_are_read() {
    let values = samples(200);
    let mut writer = Writer::new(Vec::new(), rdb::VERSION);
    for (index, value) in values.iter().enumerate() {
        let payload = rdb::dump(value.as_ref());
        let (_, bytes) = rdb::open(&payload).unwrap();
        writer.key(index as u64 / 100, index.to_string().as_bytes(), (index % 2 == 1).then_some(7), bytes).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
    for (index, value) in values.iter().enumerate() {
        let Record::Key(record) = reader.next_record().unwrap() else { panic!("a key") };
        assert_eq!((record.db, &*record.key), (index as u64 / 100, index.to_string().as_bytes()));
        assert_eq!(record.expires_at_ms, (index % 2 == 1).then_some(7));
        let again = rdb::load_value(Dialect::Redis, record.code, record.value, &ValueLimits::default()).unwrap();
        assert_eq!(content(&again), content(value));
    }
    assert!(matches!(reader.next_record(), Ok(Record::End)));
    assert_eq!(reader.offset(), bytes.len() as u64);
}

#[test]
fn a_truncated_or_damaged_file_never_passes_for_whole() {
    let whole = written();
    let records = read(&whole).unwrap().len();
    for cut in (0..whole.len()).step_by(whole.len() / 2_000 + 1) {
        let mut reader = match Reader::new(Cursor::new(&whole[..cut])) {
            Ok(reader) => reader,
            Err(_) => continue,
        };
        let ends_well = loop {
            match reader.next_record() {
                Ok(Record::End) => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        assert!(!ends_well, "cut off at {cut}");
    }
    let mut random = crate::base::rng::Rng::seeded(10);
    for _ in 0..1_000 {
        let mut bytes = whole.clone();
        let at = random.below(whole.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        match read(&bytes) {
            Err(_) => {}
            // Only the version has changed, and the file says less than before.
            Ok(seen) => assert!(at < 9 && seen.len() == records, "a bit of byte {at}"),
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(start in 0usize..3, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let magic: &[u8] = [&b"REDIS0012"[..], b"VALKEY080", b""][start];
        let _ = read(&[magic, &body].concat());
    }
}
