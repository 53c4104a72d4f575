//! Families of coordination commands whose activity is counted.

use crate::value::grants::Kind;

/// A family of commands whose activity is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// LOCK.
    Lock,
    /// GATE, and the places of LIMIT.TAKE's CONCURRENCY.
    Gate,
    /// STOCK.
    Stock,
    /// LIMIT, CL.THROTTLE and GCRA.
    Limit,
    /// Consumer groups with a policy.
    Queue,
}

impl Family {
    /// All families, in the order of their declaration.
    pub const ALL: [Family; 5] = [Family::Lock, Family::Gate, Family::Stock, Family::Limit, Family::Queue];

    /// The name of the family.
    pub fn name(self) -> &'static str {
        match self {
            Family::Lock => "lock",
            Family::Gate => "gate",
            Family::Stock => "stock",
            Family::Limit => "limit",
            Family::Queue => "queue",
        }
    }
}

impl From<Kind> for Family {
    fn from(kind: Kind) -> Family {
        match kind {
            Kind::Lock => Family::Lock,
            Kind::Gate => Family::Gate,
            Kind::Stock => Family::Stock,
        }
    }
}
