//! Tidegate.
