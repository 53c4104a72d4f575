//! Tidegate.

pub mod value;
