//! SORT and SORT_RO: the elements of a list, set or sorted set, sorted by themselves or by other keys.
//!
//! The elements are copied once into a buffer and weighed. Short rows that point into the buffer are sorted and written
//! to the reply. The lookups of BY and GET may remove expired keys, so nothing of the keyspace stays borrowed in
//! between.
//!
//! Words compare byte by byte: there is one collation, that of the C locale. Equal rows keep the order of the value.

use std::cmp::Ordering;
use std::ops::Range;

use super::item::bulk_item;
use crate::base::num::strtod_plain;
use crate::command::limits::{REPLY_FORESEEN_BYTES, REPLY_FORESEEN_ITEMS, SORT_MAX_BYTES};
use crate::engine::{Command, Ctx, Done, Origin, Run};
use crate::keyspace::any_value::{Value, ValueRef};
use crate::keyspace::entry::Entry;
use crate::keyspace::{DbIndex, Keyspace};
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, AnswersAll, Flags, Group, KeyArg, KeySpec};
use crate::value::list::List;
use crate::value::packed::Item;
use crate::value::string::Digits;

/// The options of a call.
struct Options<'a> {
    /// Compare as words, not as numbers.
    alpha: bool,
    descending: bool,
    /// The offset and count of LIMIT as given; both may be out of range.
    limit: (i64, i64),
    /// The source of the weights; `None` means the element itself. `Some(None)` means that nothing is sorted.
    by: Option<Option<Pattern<'a>>>,
    get: Vec<Pattern<'a>>,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: &mut Args<'a>, may_store: bool) -> Result<Options<'a>, Error> {
        let mut options =
            Options { alpha: false, descending: false, limit: (0, -1), by: None, get: Vec::new(), store: None };
        while !args.is_empty() {
            if args.flag("asc") {
                options.descending = false;
            } else if args.flag("desc") {
                options.descending = true;
            } else if args.flag("alpha") {
                options.alpha = true;
            } else if args.option("limit", 2) {
                options.limit = (args.int()?, args.int()?);
            } else if may_store && args.option("store", 1) {
                options.store = Some(args.bytes()?);
            } else if args.option("by", 1) {
                let pattern = args.bytes()?;
                // A BY without `*` turns sorting off, and a later BY does not turn it on again.
                let keeps_order = matches!(options.by, Some(None)) || !pattern.contains(&b'*');
                options.by = Some((!keeps_order).then(|| Pattern::parse(pattern)));
            } else if args.option("get", 1) {
                options.get.push(Pattern::parse(args.bytes()?));
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }

    /// The range of the sorted sequence that the reply shows.
    fn range(&self, len: usize) -> Range<usize> {
        let start = usize::try_from(self.limit.0.max(0)).map_or(len, |start| start.min(len));
        let count = usize::try_from(self.limit.1).unwrap_or(len);
        start..start.saturating_add(count).min(len)
    }
}

/// A pattern of BY or GET.
enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// The key between prefix and suffix, or a field of the hash there.
    Key { prefix: &'a [u8], suffix: &'a [u8], field: Option<&'a [u8]> },
    /// A name without `*`, which finds nothing.
    Nothing,
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a [u8]) -> Pattern<'a> {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else { return Pattern::Nothing };
        let (prefix, suffix) = (&text[..star], &text[star + 1..]);
        match suffix.windows(2).position(|two| two == b"->").filter(|at| at + 2 < suffix.len()) {
            Some(at) => Pattern::Key { prefix, suffix: &suffix[..at], field: Some(&suffix[at + 2..]) },
            None => Pattern::Key { prefix, suffix, field: None },
        }
    }

    /// Calls `then` with the value that the pattern finds for an element. `key` is scratch space for the name of a key.
    fn follow<T>(
        &self,
        (ks, db): (&mut Keyspace, DbIndex),
        element: &[u8],
        key: &mut Vec<u8>,
        then: impl FnOnce(Option<Item<'_>>) -> T,
    ) -> T {
        match self.write_key(element, key) {
            true => self.take(ks.read(db, key), then),
            false => then(matches!(self, Pattern::Element).then_some(Item::Bytes(element))),
        }
    }

    /// Returns the bytes of the value that [`follow`](Self::follow) would find. This lookup leaves no trace: each key
    /// counts as used once, when its value is written.
    fn bytes(&self, (ks, db): (&Keyspace, DbIndex), element: &[u8], key: &mut Vec<u8>) -> usize {
        let len = |item: Option<Item<'_>>| item.map_or(0, |item| item.as_bytes(&mut Digits::new()).len());
        match self.write_key(element, key) {
            true => self.take(ks.live(db, key).map(Entry::value), len),
            false => element.len(),
        }
    }

    /// Writes the name of the key that the pattern names for an element. Returns false if it names none.
    fn write_key(&self, element: &[u8], key: &mut Vec<u8>) -> bool {
        let Pattern::Key { prefix, suffix, .. } = self else { return false };
        key.clear();
        [prefix, element, suffix].iter().for_each(|part| key.extend_from_slice(part));
        true
    }

    /// Calls `then` with the item that the pattern takes from the value of a key.
    fn take<T>(&self, value: Option<ValueRef<'_>>, then: impl FnOnce(Option<Item<'_>>) -> T) -> T {
        let field = if let Pattern::Key { field, .. } = self { *field } else { None };
        match (value, field) {
            (Some(ValueRef::String(string)), None) => then(Some(Item::Bytes(string.as_bytes(&mut Digits::new())))),
            (Some(ValueRef::Hash(hash)), Some(field)) => then(hash.get(field)),
            _ => then(None),
        }
    }
}

/// The elements: their bytes in one buffer, and a row for each.
#[derive(Default)]
struct Rows {
    text: Vec<u8>,
    rows: Vec<Row>,
}

/// An element: the range of its bytes, and its weight.
#[derive(Clone, Default)]
struct Row {
    element: Range<usize>,
    number: f64,
    /// With ALPHA and BY: the range of the word that weighs the element, if there is one.
    word: Option<Range<usize>>,
}

impl Rows {
    fn push(&mut self, element: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(element);
        self.rows.push(Row { element: start..self.text.len(), ..Row::default() });
    }

    fn element(&self, row: &Row) -> &[u8] {
        &self.text[row.element.clone()]
    }
}

fn sort(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, true)
}

fn sort_ro(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, false)
}

fn answer(ctx: &mut Ctx<'_>, mut args: Args<'_>, may_store: bool) -> Done {
    let key = args.bytes()?;
    let argv = args.argv();
    let mut options = Options::parse(&mut args, may_store)?;
    if !ctx.server.rights().may_read_any_key(ctx.session, ctx.entry, argv) {
        // Patterns name keys that come from the data, so they need the permission to read all keys.
        if matches!(options.by, Some(Some(_))) {
            return Err(Error::text("ERR BY option of SORT denied due to insufficient ACL permissions."));
        }
        if !options.get.is_empty() {
            return Err(Error::text("ERR GET option of SORT denied due to insufficient ACL permissions."));
        }
    }
    let (rows, chosen) = gather(ctx, key, &mut options)?;
    match options.store {
        Some(to) => store(ctx, &rows, &rows.rows[chosen], &options, to),
        None => {
            ctx.reply.set_must_fit(true);
            reply(ctx, &rows, &rows.rows[chosen], &options);
            Ok(())
        }
    }
}

/// Returns the elements of the key, sorted, and the range that the reply shows.
fn gather(ctx: &mut Ctx<'_>, key: &[u8], options: &mut Options<'_>) -> Result<(Rows, Range<usize>), Error> {
    let must_repeat = options.store.is_some() || ctx.origin == Origin::Script;
    let mut rows = Rows::default();
    let unsorted = matches!(options.by, Some(None));
    match ctx.ks.read(ctx.session.db, key) {
        None => {}
        Some(ValueRef::List(list)) if unsorted => {
            let chosen = options.range(list.len());
            pick(list.iter(), options.descending, chosen).for_each(|element| rows.push(element));
            return Ok(rows_all(rows));
        }
        Some(ValueRef::ZSet(zset)) if unsorted => {
            let chosen = options.range(zset.len());
            pick(zset.iter(), options.descending, chosen).for_each(|(element, _)| rows.push(element));
            return Ok(rows_all(rows));
        }
        Some(ValueRef::List(list)) => list.iter().for_each(|element| rows.push(element)),
        Some(ValueRef::ZSet(zset)) => zset.iter().for_each(|(element, _)| rows.push(element)),
        Some(ValueRef::Set(set)) => {
            let mut digits = Digits::new();
            set.iter().for_each(|element| rows.push(element.as_bytes(&mut digits)));
            // The order of a set is arbitrary, so scripts and stored lists must not depend on it.
            if unsorted && must_repeat {
                (options.by, options.alpha) = (None, true);
            }
        }
        Some(_) => return Err(Error::WrongType),
    }
    if !matches!(options.by, Some(None)) {
        weigh(ctx, &mut rows, options)?;
        arrange(&mut rows, options);
    }
    let chosen = options.range(rows.rows.len());
    Ok((rows, chosen))
}

fn rows_all(rows: Rows) -> (Rows, Range<usize>) {
    let all = 0..rows.rows.len();
    (rows, all)
}

/// Returns a range of a sequence, counted from its end if `reversed`.
fn pick<T>(items: impl DoubleEndedIterator<Item = T>, reversed: bool, range: Range<usize>) -> impl Iterator<Item = T> {
    let (forward, backward) = if reversed { (None, Some(items.rev())) } else { (Some(items), None) };
    let both = forward.into_iter().flatten().skip(range.start).take(range.len());
    both.chain(backward.into_iter().flatten().skip(range.start).take(range.len()))
}

/// Elements, weights or results exceed [`SORT_MAX_BYTES`].
const TOO_MUCH: Error = Error::text("ERR SORT would need too much memory");

/// Sets the weight of each element.
fn weigh(ctx: &mut Ctx<'_>, rows: &mut Rows, options: &Options<'_>) -> Done {
    const NOT_NUMBERS: Error = Error::text("ERR One or more scores can't be converted into double");
    let by = options.by.as_ref().and_then(Option::as_ref);
    if by.is_none() && options.alpha {
        return Ok(());
    }
    let db = ctx.session.db;
    let (mut key, mut word) = (Vec::new(), Vec::new());
    for at in 0..rows.rows.len() {
        let element = &rows.text[rows.rows[at].element.clone()];
        word.clear();
        let found = by.unwrap_or(&Pattern::Element).follow((ctx.ks, db), element, &mut key, |item| {
            item.map(|item| word.extend_from_slice(item.as_bytes(&mut Digits::new()))).is_some()
        });
        // A missing weight counts as 0, or sorts before every word.
        if !found {
            continue;
        }
        if options.alpha {
            if rows.text.len() + word.len() > SORT_MAX_BYTES {
                return Err(TOO_MUCH);
            }
            let start = rows.text.len();
            rows.text.extend_from_slice(&word);
            rows.rows[at].word = Some(start..rows.text.len());
        } else {
            rows.rows[at].number = number(&word).ok_or(NOT_NUMBERS)?;
        }
    }
    Ok(())
}

/// Parses a weight as Redis 8 does: an empty text is 0, the number ends at a zero byte, and one out of range becomes
/// the nearest number in range.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or(text);
    let read = strtod_plain(text);
    (read.used == text.len() && !read.value.is_nan()).then_some(read.value)
}

fn arrange(rows: &mut Rows, options: &Options<'_>) {
    let text = &rows.text;
    let words = options.by.is_some();
    let compare = |a: &Row, b: &Row| -> Ordering {
        let elements = || text[a.element.clone()].cmp(&text[b.element.clone()]);
        match options.alpha {
            true if words => {
                let word = |row: &Row| row.word.clone().map(|range| &text[range]);
                word(a).cmp(&word(b))
            }
            true => elements(),
            // Weights are never NaN.
            false => a.number.partial_cmp(&b.number).unwrap_or(Ordering::Equal).then_with(elements),
        }
    };
    if options.descending {
        rows.rows.sort_by(|a, b| compare(a, b).reverse());
    } else {
        rows.rows.sort_by(compare);
    }
}

fn reply(ctx: &mut Ctx<'_>, rows: &Rows, chosen: &[Row], options: &Options<'_>) {
    ctx.reply.array(chosen.len() * options.get.len().max(1));
    let db = ctx.session.db;
    let mut key = Vec::new();
    if options.get.is_empty() {
        chosen.iter().for_each(|row| ctx.reply.bulk(rows.element(row)));
        return;
    }
    let start = ctx.reply.len();
    let gets = chosen.iter().flat_map(|row| options.get.iter().map(move |pattern| (rows.element(row), pattern)));
    for (at, (element, pattern)) in gets.clone().enumerate() {
        if at == REPLY_FORESEEN_ITEMS && ctx.reply.len() - start > REPLY_FORESEEN_BYTES {
            let rest = gets.clone().skip(at);
            let (ks, key) = (&*ctx.ks, &mut key);
            // Even the null of a pattern that finds nothing takes a byte.
            ctx.reply.announce(rest.map(|(element, pattern)| 1 + pattern.bytes((ks, db), element, key)));
        }
        if ctx.reply.is_long() {
            return;
        }
        let reply = &mut *ctx.reply;
        pattern.follow((ctx.ks, db), element, &mut key, |item| match item {
            Some(item) => bulk_item(reply, item),
            None => reply.null(),
        });
    }
}

/// Stores the result as a list and replies with its length. An element that GET does not find is empty.
fn store(ctx: &mut Ctx<'_>, rows: &Rows, chosen: &[Row], options: &Options<'_>, to: &[u8]) -> Done {
    let db = ctx.session.db;
    let limits = ctx.ks.limits().list;
    let mut list = List::new();
    let mut bytes = 0;
    let mut key = Vec::new();
    for row in chosen {
        if options.get.is_empty() {
            list.push_back(rows.element(row), limits);
        }
        for pattern in &options.get {
            pattern.follow((ctx.ks, db), rows.element(row), &mut key, |item| {
                let mut digits = Digits::new();
                let item = item.unwrap_or(Item::Bytes(b"")).as_bytes(&mut digits);
                bytes += item.len();
                if bytes <= SORT_MAX_BYTES {
                    list.push_back(item, limits);
                }
            });
            if bytes > SORT_MAX_BYTES {
                return Err(TOO_MUCH);
            }
        }
    }
    ctx.reply.integer(list.len() as i64);
    if list.is_empty() {
        if let Some(slot) = ctx.ks.find(db, to) {
            ctx.ks.remove(db, slot);
        }
    } else {
        let (before, len) = (ctx.ks.changes_by_commands(), list.len() as u64);
        ctx.put_value(to, Value::List(list))?;
        ctx.ks.count_changes_as(before, len);
    }
    Ok(())
}

const SORT: Command = Command {
    arity: -2,
    group: Group::Generic,
    categories: &["@set", "@sortedset", "@list", "@dangerous"],
    complexity: "O(N+M*log(M)) for N elements of which M are returned, O(N) if they are not sorted",
    ..Command::EMPTY
};

/// Finds the key of SORT and the destination of its last STORE.
fn find_keys(argv: Argv<'_>) -> Option<Vec<KeyArg>> {
    let mut keys = vec![KeyArg { index: 1, access: Access::Read }];
    let mut at = 2;
    while let Some(word) = argv.get(at) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("limit") {
            at += 2;
        } else if is("get") || is("by") {
            at += 1;
        } else if is("store") && at + 1 < argv.len() {
            keys.truncate(1);
            keys.push(KeyArg { index: at + 1, access: Access::Overwrite });
        }
        at += 1;
    }
    Some(keys)
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "sort",
        find_keys: Some(find_keys),
        answers_all: AnswersAll::Without("limit"),
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::one(1, Access::Read), KeySpec::unknown(Access::Read), KeySpec::unknown(Access::Overwrite)],
        summary: "Sorts the elements of a list, set or sorted set, and returns or stores them.",
        syntax: "key [BY pattern]:by-pattern [LIMIT offset count] [GET pattern]:get-pattern... [ASC | DESC]:order \
            [ALPHA:sorting] [STORE destination]",
        event: "sortstore",
        run: Run::Now(sort),
        ..SORT
    },
    Command {
        name: "sort_ro",
        answers_all: AnswersAll::Without("limit"),
        flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::one(1, Access::Read), KeySpec::unknown(Access::Read)],
        since: "7.0.0",
        summary: "Sorts the elements of a list, set or sorted set, and returns them.",
        syntax: "key [BY pattern]:by-pattern [LIMIT offset count] [GET pattern]:get-pattern... [ASC | DESC]:order \
            [ALPHA:sorting]",
        run: Run::Now(sort_ro),
        ..SORT
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_lead_to_keys_and_fields() {
        let shown = |text: &'static str| match Pattern::parse(text.as_bytes()) {
            Pattern::Element => "#".to_owned(),
            Pattern::Nothing => "nothing".to_owned(),
            Pattern::Key { prefix, suffix, field } => {
                format!(
                    "{} {} {:?}",
                    prefix.escape_ascii(),
                    suffix.escape_ascii(),
                    field.map(<[u8]>::escape_ascii).map(|f| f.to_string())
                )
            }
        };
        assert_eq!(shown("#"), "#");
        assert_eq!(shown("weight"), "nothing");
        assert_eq!(shown("w_*"), "w_  None");
        assert_eq!(shown("a*b->f->g"), "a b Some(\"f->g\")");
        assert_eq!(shown("a->b*"), "a->b  None");
        assert_eq!(shown("a*->"), "a -> None");
    }

    #[test]
    fn limits_are_cut_to_the_elements() {
        let range = |start, count| {
            Options { alpha: false, descending: false, limit: (start, count), by: None, get: Vec::new(), store: None }
                .range(4)
        };
        assert_eq!(range(0, -1), 0..4);
        assert_eq!(range(-5, 2), 0..2);
        assert_eq!(range(1, -7), 1..4);
        assert_eq!(range(3, i64::MAX), 3..4);
        assert_eq!(range(9, 2), 4..4);
        assert_eq!(range(i64::MAX, i64::MIN), 4..4);
        assert_eq!(range(2, 0), 2..2);
    }
}
