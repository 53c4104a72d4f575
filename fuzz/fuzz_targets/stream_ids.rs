//! Ids of streams as clients write them: an id that was read is written in one canonical form, which reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::value::stream::{NewId, StreamId};

fuzz_target!(|data: &[u8]| {
    for missing_seq in [0, u64::MAX] {
        let found = [
            StreamId::parse(data, missing_seq),
            StreamId::parse_or_edge(data, missing_seq),
            StreamId::parse_bound(data, missing_seq).map(|(id, _)| id),
        ];
        for id in found.into_iter().flatten() {
            assert_eq!(StreamId::parse(id.to_text().as_bytes(), missing_seq), Some(id));
            assert!(id.next().is_none_or(|next| next > id && next.prev() == Some(id)));
        }
    }
    if let Some(NewId::Exact(id)) = NewId::parse(data) {
        assert_eq!(StreamId::parse(data, 0), Some(id));
    }
});
