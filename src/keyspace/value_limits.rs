//! The limits within which values stay compact.

use crate::config::Config;
use crate::value::hash::HashLimits;
use crate::value::list::ListLimits;
use crate::value::set::SetLimits;
use crate::value::stream::StreamLimits;
use crate::value::zset::ZSetLimits;

/// The sizes at which values change from their compact representation to the one for many elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ValueLimits {
    pub hash: HashLimits,
    pub set: SetLimits,
    pub zset: ZSetLimits,
    pub list: ListLimits,
    pub stream: StreamLimits,
}

impl From<&Config> for ValueLimits {
    fn from(config: &Config) -> ValueLimits {
        ValueLimits {
            hash: HashLimits {
                max_listpack_entries: config.hash_max_listpack_entries,
                max_listpack_value: config.hash_max_listpack_value,
            },
            set: SetLimits {
                max_intset_entries: config.set_max_intset_entries,
                max_listpack_entries: config.set_max_listpack_entries,
                max_listpack_value: config.set_max_listpack_value,
            },
            zset: ZSetLimits {
                max_entries: config.zset_max_listpack_entries,
                max_value: config.zset_max_listpack_value,
            },
            list: ListLimits { max_listpack_size: config.list_max_listpack_size, ..ListLimits::default() },
            stream: StreamLimits {
                node_max_bytes: config.stream_node_max_bytes,
                node_max_entries: config.stream_node_max_entries,
            },
        }
    }
}
