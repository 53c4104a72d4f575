//! Locks, gates and stocks in payloads of DUMP. Redis has no such values, so the layout is our own; numbers are written
//! as RDB lengths.
//!
//! ```text
//! kind, limit, whether it is the gate's own, number of grants
//! for each grant, in the order of their tokens:
//! holder, token, units, since, until (8 bytes each, little-endian), entered, whether it is shared, note
//! for a stock, after the grants:
//! total, sold, low, refill_ms, period_ms, stream, refiller, refill_until (8 bytes)
//! for each memory: number of names; for each name, in the order of the memory: name, units, time (8 bytes)
//! ```

use super::wire::{Corrupt, Input, put_number, put_string};
use crate::keyspace::NEVER;
use crate::keyspace::limits::{GRANT_NOTE_MAX_BYTES, HOLDER_MAX_BYTES, LEASE_MAX_MS, STOCK_REPORTED_KEY_MAX_BYTES};
use crate::value::grants::{Grant, Grants, Kind, UNITS_MAX};
use crate::value::stock::{AMOUNT_MAX, Memory, Remembered, Stock, Terms};

const LOCK: u64 = 0;
const GATE: u64 = 1;
pub(super) const STOCK: u64 = 2;

/// Appends all grants of a lock, gate or stock, followed by a stock's other data.
pub(super) fn encode(grants: &Grants, out: &mut Vec<u8>) {
    let kind = match grants.kind() {
        Kind::Lock => LOCK,
        Kind::Gate => GATE,
        Kind::Stock => STOCK,
    };
    let head = [kind, grants.limit(), grants.is_fixed().into(), grants.len() as u64];
    head.into_iter().for_each(|number| put_number(out, number));
    for Grant { holder, token, units, since_ms, until_ms, entered, shared, note } in grants.from(0) {
        put_string(out, holder);
        [token, units].into_iter().for_each(|number| put_number(out, number));
        [since_ms, until_ms].into_iter().for_each(|at_ms| out.extend_from_slice(&at_ms.to_le_bytes()));
        [entered, shared.into()].into_iter().for_each(|number| put_number(out, number));
        put_string(out, note);
    }
    if let Some(stock) = grants.stock() {
        encode_stock(stock, out);
    }
}

fn encode_stock(stock: &Stock, out: &mut Vec<u8>) {
    let Terms { total, sold, low, refill_ms, period_ms, ref stream, ref refiller, refill_until_ms } = stock.terms;
    [total, sold, low, refill_ms, period_ms].into_iter().for_each(|number| put_number(out, number));
    put_string(out, stream);
    put_string(out, refiller);
    out.extend_from_slice(&refill_until_ms.to_le_bytes());
    for memory in Memory::ALL {
        put_number(out, stock.names_of(memory) as u64);
        for (_, name, Remembered { units, at_ms }) in stock.memory_from(memory, 0) {
            put_string(out, name);
            put_number(out, units);
            out.extend_from_slice(&at_ms.to_le_bytes());
        }
    }
}

/// Reads the output of [`encode`].
pub(super) fn decode(input: &mut Input<'_>) -> Result<Grants, Corrupt> {
    let kind = match input.number()? {
        LOCK => Kind::Lock,
        GATE => Kind::Gate,
        STOCK => Kind::Stock,
        _ => return Err(Corrupt),
    };
    let (limit, is_fixed, count) = (input.number()?, truth(input)?, input.number()?);
    let is_sound = match kind {
        Kind::Lock => limit == 0 && !is_fixed,
        Kind::Gate => limit <= UNITS_MAX,
        Kind::Stock => limit == 0 && is_fixed,
    };
    if !is_sound {
        return Err(Corrupt);
    }
    let (mut grants, mut last_token) = (Grants::new(kind, limit, is_fixed), 0);
    for _ in 0..count {
        let (holder, token, units) = (input.string()?, input.number()?, input.number()?);
        let [since_ms, until_ms] = [i64::from_le_bytes(input.array()?), i64::from_le_bytes(input.array()?)];
        let (entered, shared, note) = (input.number()?, truth(input)?, input.string()?);
        // This order rules out duplicates and makes adding each grant cheap.
        if token <= last_token || until_ms == NEVER {
            return Err(Corrupt);
        }
        // Commands accept none of these. Long texts would make every change of the value slow.
        let are_short = (1..=HOLDER_MAX_BYTES).contains(&holder.len()) && note.len() <= GRANT_NOTE_MAX_BYTES;
        let is_counted = (1..=u64::from(u32::MAX)).contains(&entered) && (kind != Kind::Lock || units == 1);
        if !are_short || !is_counted {
            return Err(Corrupt);
        }
        let is_alone = shared || count == 1;
        let fits = is_alone || kind != Kind::Lock;
        let grant = Grant { holder: &holder, token, units, since_ms, until_ms, entered, shared, note: &note };
        if !fits || !grants.set(grant) {
            return Err(Corrupt);
        }
        last_token = token;
    }
    if let Some(stock) = grants.stock_mut() {
        decode_stock(stock, input)?;
    }
    if grants.is_hollow() { Err(Corrupt) } else { Ok(grants) }
}

/// Reads the output of [`encode_stock`].
fn decode_stock(stock: &mut Stock, input: &mut Input<'_>) -> Result<(), Corrupt> {
    let (total, sold, low) = (input.number()?, input.number()?, input.number()?);
    let (refill_ms, period_ms) = (input.number()?, input.number()?);
    let (stream, refiller) = (input.string()?.to_vec().into(), input.string()?.to_vec().into());
    let refill_until_ms = i64::from_le_bytes(input.array()?);
    let terms = Terms { total, sold, low, refill_ms, period_ms, stream, refiller, refill_until_ms };
    let are_amounts = [total, sold, low].into_iter().all(|amount| amount <= AMOUNT_MAX);
    let are_times = [refill_ms, period_ms].into_iter().all(|ms| ms <= LEASE_MAX_MS as u64);
    let are_short = terms.refiller.len() <= HOLDER_MAX_BYTES && terms.stream.len() <= STOCK_REPORTED_KEY_MAX_BYTES;
    let is_refiller = !terms.refiller.is_empty() || terms.refill_until_ms == 0;
    if !are_amounts || !are_times || !are_short || !is_refiller {
        return Err(Corrupt);
    }
    stock.terms = terms;
    // Units held may yet be sold.
    if stock.held().saturating_add(sold) > AMOUNT_MAX {
        return Err(Corrupt);
    }
    for memory in Memory::ALL {
        let count = input.number()?;
        if count > memory.most() as u64 {
            return Err(Corrupt);
        }
        for names in 1..=count {
            let (name, units) = (input.string()?, input.number()?);
            let at_ms = i64::from_le_bytes(input.array()?);
            if !(1..=HOLDER_MAX_BYTES).contains(&name.len()) || units > AMOUNT_MAX {
                return Err(Corrupt);
            }
            if memory == Memory::Buyers && stock.held_for(&name).saturating_add(units) > AMOUNT_MAX {
                return Err(Corrupt);
            }
            stock.remember(memory, &name, Remembered { units, at_ms });
            // A duplicate does not add a name.
            if stock.names_of(memory) as u64 != names {
                return Err(Corrupt);
            }
        }
    }
    Ok(())
}

fn truth(input: &mut Input<'_>) -> Result<bool, Corrupt> {
    match input.number()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Corrupt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(count: u64) -> Grants {
        let mut gate = Grants::new(Kind::Gate, 500, true);
        for token in 1..=count {
            let holder = format!("holder-{token}").into_bytes();
            let (until_ms, shared, note) = (2_000_000 + token as i64, token % 2 == 0, &b"a note"[..]);
            let grant = Grant {
                holder: &holder,
                token: 3 * token,
                units: token,
                since_ms: -1,
                until_ms,
                entered: 2,
                shared,
                note,
            };
            assert!(gate.set(grant));
        }
        gate
    }

    #[test]
    fn grants_are_read_as_written() {
        for count in [0, 1, 64, 65, 300] {
            let (gate, mut bytes) = (gate(count), Vec::new());
            encode(&gate, &mut bytes);
            let read = decode(&mut Input::new(&bytes, usize::MAX)).expect("it is whole");
            assert_eq!(format!("{read:?}"), format!("{gate:?}"));
            // Truncated at any point.
            for len in (0..bytes.len()).step_by(1 + bytes.len() / 200) {
                assert!(decode(&mut Input::new(&bytes[..len], usize::MAX)).is_err(), "{len} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn inconsistent_values_are_refused() {
        let lock = |shared: [bool; 2]| {
            let mut lock = Grants::new(Kind::Lock, 0, false);
            for (token, (holder, shared)) in (1..).zip([&b"a"[..], b"b"].into_iter().zip(shared)) {
                assert!(lock.set(Grant {
                    holder,
                    token,
                    units: 1,
                    since_ms: 0,
                    until_ms: 9,
                    entered: 1,
                    shared,
                    note: b""
                }));
            }
            let mut bytes = Vec::new();
            encode(&lock, &mut bytes);
            decode(&mut Input::new(&bytes, usize::MAX)).is_ok()
        };
        assert!(lock([true, true]) && !lock([true, false]) && !lock([false, true]));
        let one = |change: fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            encode(&gate(1), &mut bytes);
            change(&mut bytes);
            decode(&mut Input::new(&bytes, usize::MAX)).is_ok()
        };
        assert!(one(|_| ()));
        assert!(!one(|bytes| bytes[0] = 3), "no such kind");
        assert!(!one(|bytes| bytes[0] = 0), "a lock has no limit of its own");
        let hollow = |bytes: &mut Vec<u8>| {
            bytes.clear();
            [GATE, 5, 0, 0].into_iter().for_each(|number| put_number(bytes, number));
        };
        assert!(!one(hollow), "there are no grants, and the limit is not its own");
    }

    fn stock(names: u64) -> Grants {
        let mut stock = Grants::new(Kind::Stock, 0, true);
        let (stream, refiller) = (b"told"[..].into(), b"order"[..].into());
        let terms =
            Terms { total: 900, sold: 30, low: 5, refill_ms: 60, period_ms: 7, stream, refiller, refill_until_ms: -1 };
        for number in 1..=names {
            let (name, of_it) = (number.to_be_bytes(), Remembered { units: number, at_ms: -(number as i64) });
            let (holder, token, units, note) = (&name, number, number, &b"subject"[..]);
            let hold = Grant { holder, token, units, since_ms: 0, until_ms: 9, entered: 1, shared: false, note };
            assert!(stock.set(hold));
            let beside = stock.stock_mut().expect("a stock");
            beside.terms = terms.clone();
            Memory::ALL.into_iter().for_each(|memory| _ = beside.remember(memory, &name, of_it));
        }
        stock
    }

    #[test]
    fn stocks_are_read_as_written() {
        for names in [0, 1, 20, 300] {
            let (stock, mut bytes) = (stock(names), Vec::new());
            encode(&stock, &mut bytes);
            let read = decode(&mut Input::new(&bytes, usize::MAX)).expect("it is whole");
            assert_eq!((format!("{read:?}"), read.mem_bytes()), (format!("{stock:?}"), stock.mem_bytes()));
            for len in (0..bytes.len()).step_by(1 + bytes.len() / 200) {
                assert!(decode(&mut Input::new(&bytes[..len], usize::MAX)).is_err(), "{len} of {}", bytes.len());
            }
        }
        let fits = |change: fn(&mut Stock)| {
            let (mut stock, mut bytes) = (stock(1), Vec::new());
            change(stock.stock_mut().expect("a stock"));
            encode(&stock, &mut bytes);
            decode(&mut Input::new(&bytes, usize::MAX)).is_ok()
        };
        assert!(fits(|_| ()) && fits(|stock| stock.terms.total = AMOUNT_MAX));
        assert!(!fits(|stock| stock.terms.total = AMOUNT_MAX + 1));
        assert!(!fits(|stock| stock.terms.sold = AMOUNT_MAX + 1));
        assert!(!fits(|stock| stock.terms.period_ms = LEASE_MAX_MS as u64 + 1));
        assert!(!fits(|stock| stock.terms.refiller = [0; HOLDER_MAX_BYTES + 1].into()));
        const OF_IT: Remembered = Remembered { units: 1, at_ms: 0 };
        assert!(!fits(|stock| _ = stock.remember(Memory::Sales, b"", OF_IT)));
        assert!(!fits(|stock| _ = stock.remember(Memory::Sales, &[0; HOLDER_MAX_BYTES + 1], OF_IT)));
    }

    #[test]
    fn values_beyond_the_limits_of_commands_are_refused() {
        let fits = |kind, limit, change: fn(&mut Grant<'_>)| {
            let (long, mut bytes) = (vec![b'x'; HOLDER_MAX_BYTES], Vec::new());
            let mut grant = Grant {
                holder: &long,
                token: 1,
                units: 1,
                since_ms: 0,
                until_ms: 9,
                entered: u32::MAX.into(),
                shared: false,
                note: &long[..GRANT_NOTE_MAX_BYTES],
            };
            change(&mut grant);
            let mut grants = Grants::new(kind, limit, false);
            assert!(grants.set(grant));
            encode(&grants, &mut bytes);
            decode(&mut Input::new(&bytes, usize::MAX)).is_ok()
        };
        assert!(fits(Kind::Lock, 0, |_| ()) && fits(Kind::Gate, 2, |grant| grant.units = 2));
        assert!(!fits(Kind::Gate, 2, |grant| grant.holder = b""));
        assert!(!fits(Kind::Gate, 2, |grant| grant.holder = &[b'x'; HOLDER_MAX_BYTES + 1]));
        assert!(!fits(Kind::Gate, 2, |grant| grant.note = &[b'x'; GRANT_NOTE_MAX_BYTES + 1]));
        assert!(!fits(Kind::Lock, 0, |grant| grant.entered = 0));
        assert!(!fits(Kind::Lock, 0, |grant| grant.entered += 1));
        assert!(!fits(Kind::Lock, 0, |grant| grant.units = 2));
        assert!(!fits(Kind::Lock, 1, |_| ()));
    }
}
