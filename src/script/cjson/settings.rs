//! The settings of `cjson` tables.

/// The settings of one `cjson` table.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::script) struct Settings {
    pub(super) sparse_convert: bool,
    pub(super) sparse_ratio: i32,
    pub(super) sparse_safe: i32,
    pub(super) encode_max_depth: i32,
    pub(super) decode_max_depth: i32,
    pub(super) encode_invalid: Invalid,
    pub(super) decode_invalid: bool,
    pub(super) keep_buffer: bool,
    pub(super) precision: i32,
}

/// The treatment of NaN and infinities.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Invalid {
    Refuse,
    Write,
    Null,
}

impl Settings {
    pub(super) const DEFAULTS: Settings = Settings {
        sparse_convert: false,
        sparse_ratio: 2,
        sparse_safe: 10,
        encode_max_depth: 1000,
        decode_max_depth: 1000,
        encode_invalid: Invalid::Refuse,
        decode_invalid: true,
        keep_buffer: true,
        precision: 14,
    };

    /// Restores the defaults.
    pub(in crate::script) fn reset(&mut self) {
        *self = Settings::DEFAULTS;
    }
}
