//! Code that behaves differently on Redis: [`Rule::DiffersOnRedis`](super::Rule::DiffersOnRedis). docs/compatibility.md
//! lists these differences with their reasons.

use super::commands::lossy;
use super::parse::{Expr, ExprKind, Name, Suffix};
use super::value::Value;

/// A loop over a table assigns to its fields.
pub(super) const GROWS_IN_PAIRS: &str = "this loop over pairs assigns to keys that may be new: the keys it then visits \
                                         are not defined, and differ on Redis; collect new keys and add them after the \
                                         loop";
/// A metamethod or an iterator yields.
pub(super) const YIELDS: &str = "this function yields, which Redis forbids in metamethods and in the iterator of a \
                                 for: attempt to yield across metamethod/C-call boundary";
/// A key of a table is a table, a function or a coroutine.
pub(super) const KEY_BY_ADDRESS: &str = "tables, functions and coroutines as keys are visited in an order that depends \
                                         on their addresses, here and on Redis; use strings or numbers where the order \
                                         matters";

/// Whether Redis calls a metamethod of this name from C, so that it may not yield. `__call` may.
pub(super) fn is_metamethod(field: &[u8]) -> bool {
    const NAMES: &[&str] = &[
        "__index",
        "__newindex",
        "__add",
        "__sub",
        "__mul",
        "__div",
        "__mod",
        "__pow",
        "__unm",
        "__len",
        "__eq",
        "__lt",
        "__le",
        "__concat",
        "__tostring",
    ];
    NAMES.iter().any(|name| name.as_bytes() == field)
}

/// The warning about the use of a global of the sandbox, or of a field of one.
pub(super) fn of_global(name: &[u8]) -> Option<&'static str> {
    match name {
        b"server" => Some("Redis does not know the name server; use redis, which Valkey knows, too"),
        b"string.dump" => {
            Some("string.dump returns LuaJIT's bytecode, which differs from that of Redis; nothing loads it")
        }
        b"redis.set_repl" => Some("redis.set_repl changes nothing here: a script's writes are always recorded"),
        _ => None,
    }
}

/// The warning about a call of a global function.
pub(super) fn of_call(name: &[u8], args: &[Value<'_>]) -> Option<String> {
    let is_setting = match name {
        b"math.randomseed" => true,
        _ => (name.starts_with(b"cjson.encode_") || name.starts_with(b"cjson.decode_")) && !args.is_empty(),
    };
    if is_setting {
        return Some(format!(
            "a setting of {} lasts until the script ends; on Redis it also holds for later scripts",
            lossy(name)
        ));
    }
    let is_collector = matches!(
        (name, args.first()),
        (b"collectgarbage", Some(Value::Literal(what)))
            if [b"stop".as_slice(), b"restart", b"setpause", b"setstepmul"].contains(&&**what)
    );
    is_collector.then(|| {
        "a setting of the collector holds for this script alone; on Redis it holds for later ones, too".to_owned()
    })
}

/// The name of the table that a loop visits with `pairs` or `next`; `values` are the expressions after its `in`.
pub(super) fn visited<'a>(values: &[Expr<'a>]) -> Option<Name<'a>> {
    let table = match values {
        [Expr { kind: ExprKind::Suffixed(function, suffixes), .. }] => match (&function.kind, &suffixes[..]) {
            (ExprKind::Name(b"pairs"), [Suffix::Call { method: None, args, .. }]) => args.first()?,
            _ => return None,
        },
        [Expr { kind: ExprKind::Name(b"next"), .. }, table, ..] => table,
        _ => return None,
    };
    name(table)
}

/// The name that an expression consists of, if it is nothing else.
pub(super) fn name<'a>(expr: &Expr<'a>) -> Option<Name<'a>> {
    if let ExprKind::Name(name) = expr.kind { Some(name) } else { None }
}

/// The table's name and the key of `name[key]`.
pub(super) fn element<'e, 'a>(target: &'e Expr<'a>) -> Option<(Name<'a>, &'e Expr<'a>)> {
    let ExprKind::Suffixed(table, suffixes) = &target.kind else { return None };
    let [Suffix::Index(key)] = &suffixes[..] else { return None };
    Some((name(table)?, key))
}
