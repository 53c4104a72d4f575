//! SCRIPT LINT: what a script does that will hurt one day, found without running it.
//!
//! The linter walks the program's tree and follows values from where they come (KEYS, ARGV, literals, replies) through
//! locals, parameters and results of local functions to where they are used; the command table says which argument of
//! a command is a key. It walks several times: what calls pass to local functions is known in the next walk. What
//! it can't follow (fields of tables, functions that it doesn't know) it takes to be right.
//!
//! Each [`Rule`] is a way in which scripts that work on one server fail elsewhere: above all on a cluster, which routes a
//! script by its KEYS and refuses keys of other slots, and on servers that refuse keys that were not declared.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::keys::keys_of;
use super::spec::Flags;
use super::table::{CommandTable, Entry};
use crate::base::num;
use crate::resp::request::{Argv, OwnedArgv};
use crate::script::library;
use crate::script::parse::{
    Block, Class, Expr, ExprKind, Function, Name, Statement, StatementKind, Suffix, SyntaxError, parse,
};

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A key that is written into the script.
    UndeclaredKey,
    /// A key that the script makes of other things.
    ComputedKey,
    /// An element of ARGV that is a key.
    ArgvAsKey,
    /// An element of KEYS that is no key.
    KeyAsArgument,
    /// An element of KEYS that nothing is done with.
    UnusedKey,
    /// A loop without a bound, and the script writes in it or behind it.
    WriteAfterLoop,
    /// KEYS, which visits all keys.
    WholeKeyspace,
    /// A command that can't be called so.
    BadCommand,
    /// A global variable.
    Global,
}

impl Rule {
    /// The name that clients read.
    pub fn name(self) -> &'static str {
        match self {
            Rule::UndeclaredKey => "undeclared-key",
            Rule::ComputedKey => "computed-key",
            Rule::ArgvAsKey => "argv-as-key",
            Rule::KeyAsArgument => "key-as-argument",
            Rule::UnusedKey => "unused-key",
            Rule::WriteAfterLoop => "write-after-loop",
            Rule::WholeKeyspace => "whole-keyspace",
            Rule::BadCommand => "bad-command",
            Rule::Global => "global",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// Where, from 1.
    pub line: u32,
    /// What about.
    pub rule: Rule,
    /// What is found, and what to do.
    pub message: String,
}

/// Looks at the text of a script or of a library. `is_global` tells which globals there are beside KEYS and ARGV. Answers
/// what it finds in the order of the lines.
pub fn lint<R>(
    text: &[u8],
    table: &CommandTable<R>,
    is_global: &dyn Fn(&[u8]) -> bool,
) -> Result<BTreeSet<Warning>, SyntaxError> {
    let program = parse(text)?;
    let is_library = library::parse_header(text).is_ok();
    let mut linter = Linter {
        table,
        is_global,
        is_library,
        locals: Vec::new(),
        depth: 0,
        functions: BTreeMap::new(),
        current: 0,
        keys: BTreeMap::new(),
        flow: Flow::default(),
        warnings: BTreeSet::new(),
    };
    for _ in 0..WALKS {
        linter.keys.clear();
        linter.warnings.clear();
        linter.functions.values_mut().for_each(|known| known.args = std::mem::take(&mut known.passed));
        linter.function(&program);
    }
    linter.judge_keys();
    Ok(linter.warnings)
}

/// Each walk follows what calls pass to local functions one function further.
const WALKS: usize = 3;

/// Where a value comes from. Lists of keys belong to a function: the script itself (0), or one that a library registers.
#[derive(Clone, Debug, PartialEq)]
enum Value<'a> {
    /// Somewhere.
    Unknown,
    /// `nil`, `true` or `false`.
    Constant,
    /// It stands in the script.
    Literal(Cow<'a, [u8]>),
    /// KEYS of a function.
    Keys(usize),
    /// One of them, and which if that can be told.
    Key(usize, Option<u32>),
    /// How many they are.
    KeyCount(usize),
    /// ARGV.
    Args,
    /// One of them.
    Arg(Option<u32>),
    /// A command answered it, or it is a part of that.
    Reply {
        /// It is as long as what is stored.
        is_unbounded: bool,
    },
    /// It is made of other values.
    Computed,
    /// `redis`.
    Redis,
    /// `redis.call` or `redis.pcall`.
    Call,
    /// `redis.register_function`.
    Register,
    /// A global of the sandbox, or a field of one: `string.format`.
    Global(Cow<'a, [u8]>),
    /// A function of this text.
    Function(usize),
    /// What `unpack` makes of a list: elements like this one.
    Spread(Box<Value<'a>>),
    /// What `ipairs` or `pairs` makes of something.
    Iterator(Box<Value<'a>>),
}

impl<'a> Value<'a> {
    /// What may be one or the other.
    fn join(self, other: Value<'a>) -> Value<'a> {
        use Value::{Arg, Computed, Constant, Key, Literal, Reply, Unknown};
        match (self, other) {
            (a, b) if a == b => a,
            (Constant, value) | (value, Constant) => value,
            (Literal(_), value @ (Key(..) | Arg(_) | Reply { .. })) => value,
            (value @ (Key(..) | Arg(_) | Reply { .. }), Literal(_)) => value,
            (Key(a, _), Key(b, _)) if a == b => Key(a, None),
            (Arg(_), Arg(_)) => Arg(None),
            (Reply { is_unbounded: a }, Reply { is_unbounded: b }) => Reply { is_unbounded: a || b },
            (Literal(_) | Arg(_) | Computed, Literal(_) | Arg(_) | Computed) => Computed,
            _ => Unknown,
        }
    }

    /// One of the values that this one holds.
    fn element(&self) -> Value<'a> {
        match *self {
            Value::Keys(of) => Value::Key(of, None),
            Value::Args => Value::Arg(None),
            Value::Reply { .. } => Value::Reply { is_unbounded: false },
            Value::Computed => Value::Computed,
            _ => Value::Unknown,
        }
    }
}

/// Stands in a command for what is not known: no option and no number.
const UNKNOWN: &[u8] = b"\0";

/// What happens to a value.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// It is a key of a command.
    Key,
    /// It is looked at, or passed as something else than a key.
    Other,
    /// It goes where it can't be followed.
    Away,
}

/// What is known of a function after it was walked.
#[derive(Default)]
struct Known<'a> {
    /// What calls passed in the walk before, by parameter.
    args: Vec<Value<'a>>,
    /// What they have passed in this one.
    passed: Vec<Value<'a>>,
    /// What it answers first.
    result: Option<Value<'a>>,
    flow: Flow,
    /// A library registers it: clients call it.
    is_entry: bool,
}

/// What a function does, in the order of its text.
#[derive(Clone, Default)]
struct Flow {
    /// The line of a loop without bound that nothing was written behind so far.
    open_loop: Option<u32>,
    /// The same, whatever came behind it.
    any_loop: Option<u32>,
    writes: bool,
}

/// How the keys of a function are used.
#[derive(Default)]
struct KeyUses {
    by_index: BTreeMap<u32, KeyUse>,
    /// Also in a way that tells no index.
    is_open: bool,
    /// Keys that a comparison with `#KEYS` asks for, and where.
    asked: Option<(u32, u32)>,
}

struct KeyUse {
    /// Where it is named first.
    line: u32,
    is_key: bool,
    is_away: bool,
    /// Where it is used as something else than a key.
    other_line: Option<u32>,
}

struct Local<'a> {
    name: Name<'a>,
    value: Value<'a>,
    depth: usize,
}

/// The walk. See the module's header.
struct Linter<'t, 'a, R: 'static> {
    table: &'t CommandTable<R>,
    is_global: &'t dyn Fn(&[u8]) -> bool,
    is_library: bool,
    /// Those in sight, the innermost last.
    locals: Vec<Local<'a>>,
    /// How many blocks are open.
    depth: usize,
    /// By number.
    functions: BTreeMap<usize, Known<'a>>,
    /// The function that is walked.
    current: usize,
    /// By the function whose keys they are.
    keys: BTreeMap<usize, KeyUses>,
    flow: Flow,
    warnings: BTreeSet<Warning>,
}

impl<'t, 'a, R> Linter<'t, 'a, R> {
    fn warn(&mut self, line: u32, rule: Rule, message: impl Into<String>) {
        self.warnings.insert(Warning { line, rule, message: message.into() });
    }

    /// Walks a function's body with what is known of its arguments.
    fn function(&mut self, function: &Function<'a>) {
        let outer = (self.current, std::mem::take(&mut self.flow), self.locals.len());
        self.current = function.number;
        self.functions.entry(function.number).or_default().result = None;
        self.depth += 1;
        for (i, name) in function.parameters.iter().enumerate() {
            let known = self.functions.get(&function.number).and_then(|known| known.args.get(i));
            let value = known.cloned().unwrap_or(Value::Unknown);
            self.declare(name, value);
        }
        self.block(&function.body);
        self.depth -= 1;
        self.locals.truncate(outer.2);
        self.current = outer.0;
        let flow = std::mem::replace(&mut self.flow, outer.1);
        self.functions.entry(function.number).or_default().flow = flow;
    }

    fn block(&mut self, block: &Block<'a>) {
        let in_sight = self.locals.len();
        self.depth += 1;
        block.iter().for_each(|statement| self.statement(statement));
        self.depth -= 1;
        self.locals.truncate(in_sight);
    }

    fn declare(&mut self, name: Name<'a>, value: Value<'a>) {
        self.locals.push(Local { name, value, depth: self.depth });
    }

    fn statement(&mut self, Statement { line, kind }: &Statement<'a>) {
        match kind {
            StatementKind::Local { names, values } => {
                let is_nil = values.is_empty();
                let values = self.values(values);
                for (i, name) in names.iter().enumerate() {
                    self.declare(name, if is_nil { Value::Constant } else { nth(&values, i) });
                }
            }
            StatementKind::LocalFunction { name, function } => {
                self.declare(name, Value::Function(function.number));
                self.function(function);
            }
            StatementKind::Assign { targets, values } => {
                let values = self.values(values);
                targets.iter().enumerate().for_each(|(i, target)| self.assign(target, nth(&values, i)));
            }
            StatementKind::Call(call) => {
                self.value(call);
            }
            StatementKind::Do(body) => self.block(body),
            StatementKind::While { condition, body } => {
                self.test(condition);
                self.open_loop(*line);
                self.block(body);
            }
            StatementKind::Repeat { body, condition } => {
                self.open_loop(*line);
                // The condition sees the locals of the body.
                let in_sight = self.locals.len();
                self.depth += 1;
                body.iter().for_each(|statement| self.statement(statement));
                self.test(condition);
                self.depth -= 1;
                self.locals.truncate(in_sight);
            }
            StatementKind::If { arms, otherwise } => {
                for (condition, body) in arms {
                    self.test(condition);
                    self.block(body);
                }
                self.block(otherwise);
            }
            StatementKind::CountingFor { name, bounds, body } => {
                let bounds = self.values(bounds);
                if bounds.contains(&Value::Reply { is_unbounded: true }) {
                    self.open_loop(*line);
                }
                bounds.iter().for_each(|bound| self.mark(bound, *line, Use::Other));
                self.loop_body(&[name], &[Value::Unknown], body);
            }
            StatementKind::GenericFor { names, values, body } => {
                let values = self.values(values);
                let element = match values.first() {
                    Some(Value::Iterator(of)) => {
                        if **of == (Value::Reply { is_unbounded: true }) {
                            self.open_loop(*line);
                        }
                        of.element()
                    }
                    _ => Value::Unknown,
                };
                self.loop_body(names, &[Value::Unknown, element], body);
            }
            StatementKind::Return(values) => {
                let values = self.values(values);
                let known = self.functions.entry(self.current).or_default();
                if self.current == 0 || known.is_entry {
                    return values.iter().for_each(|value| self.mark(value, *line, Use::Other));
                }
                let value = nth(&values, 0);
                known.result = Some(match known.result.take() {
                    Some(other) => other.join(value),
                    None => value,
                });
            }
            StatementKind::Jump => {}
        }
    }

    fn loop_body(&mut self, names: &[Name<'a>], values: &[Value<'a>], body: &Block<'a>) {
        let in_sight = self.locals.len();
        for (i, name) in names.iter().enumerate() {
            self.declare(name, nth(values, i));
        }
        self.block(body);
        self.locals.truncate(in_sight);
    }

    fn test(&mut self, condition: &Expr<'a>) {
        let value = self.value(condition);
        self.mark(&value, condition.line, Use::Other);
    }

    fn open_loop(&mut self, line: u32) {
        self.flow.open_loop = Some(line);
        self.flow.any_loop = Some(line);
    }

    fn write(&mut self) {
        self.flow.writes = true;
        if let Some(line) = self.flow.open_loop.take() {
            let message = "this loop has no bound, and the script writes in it or behind it: others wait, and where a script \
                           that wrote can't be ended they wait for good; work in batches";
            self.warn(line, Rule::WriteAfterLoop, message);
        }
    }

    fn assign(&mut self, target: &Expr<'a>, value: Value<'a>) {
        match &target.kind {
            ExprKind::Name(name) => {
                let depth = self.depth;
                let Some(local) = self.locals.iter_mut().rev().find(|local| local.name == *name) else {
                    self.mark(&value, target.line, Use::Away);
                    let message = format!("the global '{}' is assigned, which is an error: write local", lossy(name));
                    return self.warn(target.line, Rule::Global, message);
                };
                if local.depth == depth {
                    local.value = value;
                } else {
                    let before = std::mem::replace(&mut local.value, Value::Unknown);
                    let joined = before.clone().join(value.clone());
                    local.value = joined.clone();
                    self.lose_joined(&[before, value], &joined, target.line);
                }
            }
            _ => {
                self.value(target);
                self.mark(&value, target.line, Use::Away);
            }
        }
    }

    /// Keys that one of several values may be can't be followed further.
    fn lose_joined(&mut self, values: &[Value<'a>], joined: &Value<'a>, line: u32) {
        for value in values.iter().filter(|value| *value != joined) {
            self.mark(value, line, Use::Away);
        }
    }

    fn values(&mut self, exprs: &[Expr<'a>]) -> Vec<Value<'a>> {
        exprs.iter().map(|expr| self.value(expr)).collect()
    }

    fn value(&mut self, expr: &Expr<'a>) -> Value<'a> {
        let line = expr.line;
        match &expr.kind {
            ExprKind::Constant => Value::Constant,
            ExprKind::Number(digits) => Value::Literal(Cow::Borrowed(digits)),
            ExprKind::Text(text) => Value::Literal(text.clone()),
            ExprKind::Rest => Value::Unknown,
            ExprKind::Name(name) => self.named(name, line),
            ExprKind::Function(function) => {
                self.function(function);
                Value::Function(function.number)
            }
            ExprKind::Table(fields) => {
                for (key, value) in fields {
                    let key = key.as_ref().map(|key| self.value(key));
                    let value = self.value(value);
                    key.iter().chain([&value]).for_each(|value| self.mark(value, line, Use::Away));
                }
                Value::Unknown
            }
            ExprKind::Length(of) => match self.value(of) {
                Value::Keys(of) => Value::KeyCount(of),
                reply @ Value::Reply { .. } => reply,
                value => {
                    self.mark(&value, line, Use::Other);
                    Value::Computed
                }
            },
            ExprKind::Unary(of) => match self.value(of) {
                Value::Literal(digits) if !digits.starts_with(b"-") => {
                    Value::Literal([b"-".as_slice(), &digits].concat().into())
                }
                value => {
                    self.mark(&value, line, Use::Other);
                    Value::Constant
                }
            },
            ExprKind::Operation(class, operands) => self.operation(*class, operands, line),
            ExprKind::Suffixed(base, suffixes) => {
                let base = self.value(base);
                suffixes.iter().fold(base, |value, suffix| self.suffix(value, suffix, line))
            }
        }
    }

    fn named(&mut self, name: Name<'a>, line: u32) -> Value<'a> {
        if let Some(local) = self.locals.iter().rev().find(|local| local.name == name) {
            return local.value.clone();
        }
        match name {
            b"KEYS" if !self.is_library => Value::Keys(0),
            b"ARGV" if !self.is_library => Value::Args,
            b"redis" | b"server" => Value::Redis,
            _ if (self.is_global)(name) => Value::Global(Cow::Borrowed(name)),
            _ => {
                self.warn(line, Rule::Global, format!("there is no global '{}'", lossy(name)));
                Value::Unknown
            }
        }
    }

    fn operation(&mut self, class: Class, operands: &[Expr<'a>], line: u32) -> Value<'a> {
        let values = self.values(operands);
        match class {
            Class::Or => {
                let joined = values.iter().cloned().reduce(Value::join).unwrap_or(Value::Unknown);
                self.lose_joined(&values, &joined, line);
                joined
            }
            Class::And => {
                let (last, tests) = values.split_last().expect("an operation has operands");
                tests.iter().for_each(|value| self.mark(value, line, Use::Other));
                last.clone()
            }
            Class::Compare => {
                if let [Value::KeyCount(of), Value::Literal(digits)] | [Value::Literal(digits), Value::KeyCount(of)] =
                    &values[..]
                    && let Some(count) = index(digits)
                {
                    let uses = self.keys.entry(*of).or_default();
                    uses.asked = uses.asked.max(Some((count, line)));
                }
                values.iter().for_each(|value| self.mark(value, line, Use::Other));
                Value::Constant
            }
            Class::Concat | Class::Arithmetic => {
                let usage = if class == Class::Concat { Use::Away } else { Use::Other };
                values.iter().for_each(|value| self.mark(value, line, usage));
                Value::Computed
            }
        }
    }

    fn suffix(&mut self, value: Value<'a>, suffix: &Suffix<'a>, line: u32) -> Value<'a> {
        match suffix {
            Suffix::Index(key) => {
                let key = self.value(key);
                self.indexed(value, key, line)
            }
            Suffix::Call { line, method: Some(_), args } => {
                let args = self.values(args);
                args.iter().chain([&value]).for_each(|value| self.mark(value, *line, Use::Away));
                if value == Value::Unknown { Value::Unknown } else { Value::Computed }
            }
            Suffix::Call { line, method: None, args } => self.called(value, args, *line),
        }
    }

    fn indexed(&mut self, value: Value<'a>, key: Value<'a>, line: u32) -> Value<'a> {
        let literal = if let Value::Literal(literal) = &key { Some(&**literal) } else { None };
        match (value, literal) {
            (Value::Keys(of), Some(digits)) => {
                let index = index(digits);
                self.name_key(of, index, line);
                Value::Key(of, index)
            }
            (Value::Args, Some(digits)) => Value::Arg(index(digits)),
            (Value::Redis, Some(b"call" | b"pcall")) => Value::Call,
            (Value::Redis, Some(b"register_function")) => Value::Register,
            (Value::Redis, Some(name)) => Value::Global([b"redis.".as_slice(), name].concat().into()),
            (Value::Global(library), Some(name)) if !library.contains(&b'.') => {
                Value::Global([&*library, b".".as_slice(), name].concat().into())
            }
            (value, _) => {
                if let Value::Keys(of) = value {
                    self.name_key(of, None, line);
                }
                self.mark(&key, line, Use::Away);
                value.element()
            }
        }
    }

    fn name_key(&mut self, of: usize, index: Option<u32>, line: u32) {
        let uses = self.keys.entry(of).or_default();
        match index {
            None => uses.is_open = true,
            Some(index) => {
                let fresh = KeyUse { line, is_key: false, is_away: false, other_line: None };
                uses.by_index.entry(index).or_insert(fresh);
            }
        }
    }

    /// Notes what happens to a value, if it is a key.
    fn mark(&mut self, value: &Value<'a>, line: u32, usage: Use) {
        match value {
            Value::Key(of, Some(index)) => {
                self.name_key(*of, Some(*index), line);
                let uses = self.keys.get_mut(of).and_then(|uses| uses.by_index.get_mut(index));
                let Some(uses) = uses else { return };
                match usage {
                    Use::Key => uses.is_key = true,
                    Use::Other => uses.other_line = uses.other_line.or(Some(line)),
                    Use::Away => uses.is_away = true,
                }
            }
            Value::Key(of, None) | Value::Keys(of) => self.name_key(*of, None, line),
            Value::Spread(of) | Value::Iterator(of) => self.mark(of, line, usage),
            _ => {}
        }
    }

    fn called(&mut self, function: Value<'a>, args: &[Expr<'a>], line: u32) -> Value<'a> {
        if function == Value::Register {
            return self.register(args);
        }
        let args = self.values(args);
        match &function {
            Value::Call => self.command(&args, line),
            Value::Function(number) => self.call_local(*number, args),
            Value::Global(name) => self.call_global(name, args, line),
            _ => {
                args.iter().for_each(|arg| self.mark(arg, line, Use::Away));
                Value::Unknown
            }
        }
    }

    /// A call of a function of this text: notes what it passes, does what the function does, answers what that answers.
    fn call_local(&mut self, number: usize, args: Vec<Value<'a>>) -> Value<'a> {
        let known = self.functions.entry(number).or_default();
        for (i, arg) in args.into_iter().enumerate() {
            match known.passed.get_mut(i) {
                None => known.passed.push(arg),
                Some(known) => *known = std::mem::replace(known, Value::Unknown).join(arg),
            }
        }
        let (flow, result) = (known.flow.clone(), known.result.clone());
        if flow.writes {
            self.write();
        }
        if let Some(line) = flow.any_loop {
            self.flow.any_loop = Some(line);
            self.flow.open_loop = flow.open_loop;
        }
        result.unwrap_or(Value::Unknown)
    }

    fn call_global(&mut self, name: &[u8], mut args: Vec<Value<'a>>, line: u32) -> Value<'a> {
        let usage = match name {
            b"tostring" | b"assert" => return nth(&args, 0),
            b"unpack" => return Value::Spread(Box::new(nth(&args, 0).element())),
            b"ipairs" | b"pairs" => {
                let of = match nth(&args, 0) {
                    // Values of values do not grow.
                    Value::Iterator(_) | Value::Spread(_) => Value::Unknown,
                    of => of,
                };
                return Value::Iterator(Box::new(of));
            }
            b"pcall" if args.first() == Some(&Value::Call) => return self.command(&args[1..], line),
            b"pcall" if matches!(args.first(), Some(Value::Function(_))) => {
                let Value::Function(number) = args.remove(0) else { return Value::Unknown };
                self.call_local(number, args);
                return Value::Unknown;
            }
            b"tonumber" | b"type" => Use::Other,
            _ if [b"math.".as_slice(), b"cjson.", b"cmsgpack.", b"redis."].iter().any(|of| name.starts_with(of)) => {
                Use::Other
            }
            _ => Use::Away,
        };
        args.iter().for_each(|arg| self.mark(arg, line, usage));
        match (name, args.first()) {
            (b"tonumber", Some(value @ (Value::Arg(_) | Value::Reply { .. }))) => value.clone(),
            (_, _) if name.contains(&b'.') && !name.starts_with(b"table.") || name == b"tonumber" => Value::Computed,
            _ => Value::Unknown,
        }
    }

    /// `redis.register_function`, in either form: clients call that function with its keys and arguments.
    fn register(&mut self, args: &[Expr<'a>]) -> Value<'a> {
        let callback = match args {
            [Expr { kind: ExprKind::Table(fields), .. }] => {
                let is_callback = |key: &Option<Expr<'a>>| matches!(key, Some(Expr { kind: ExprKind::Text(name), .. }) if **name == *b"callback");
                let callback = fields.iter().find(|(key, _)| is_callback(key));
                callback.map(|(_, value)| self.value(value))
            }
            _ => self.values(args).into_iter().nth(1),
        };
        if let Some(Value::Function(number)) = callback {
            let known = self.functions.entry(number).or_default();
            known.passed = vec![Value::Keys(number), Value::Args];
            known.is_entry = true;
        }
        Value::Unknown
    }

    /// `redis.call`.
    fn command(&mut self, args: &[Value<'a>], line: u32) -> Value<'a> {
        let answer = Value::Reply { is_unbounded: false };
        let mut argv = OwnedArgv::default();
        for arg in args {
            match arg {
                Value::Literal(text) => argv.push(text),
                _ => argv.push(UNKNOWN),
            }
        }
        let (argv, is_open) = (argv.as_argv(), matches!(args.last(), Some(Value::Spread(_) | Value::Unknown)));
        let entry = match args.first() {
            Some(Value::Literal(_)) => self.find_command(argv, is_open, line),
            _ => None,
        };
        let Some(entry) = entry else {
            args.iter().for_each(|arg| self.mark(arg, line, Use::Away));
            return answer;
        };
        let command = entry.command;
        let has_keys = !command.keys.is_empty();
        let keys = if has_keys { keys_of(command, argv) } else { Some(Vec::new()) };
        for (i, arg) in args.iter().enumerate() {
            match &keys {
                None => self.mark(arg, line, Use::Away),
                Some(keys) if keys.iter().any(|key| key.index == i) => self.key(entry, arg, line),
                Some(_) => self.mark(arg, line, Use::Other),
            }
        }
        if command.flags.has(Flags::WRITE) {
            self.write();
        }
        if entry.full_name == "keys" {
            self.warn(line, Rule::WholeKeyspace, "KEYS visits every key of the database while all others wait");
        }
        Value::Reply { is_unbounded: reads_all(&entry.full_name, argv) }
    }

    /// The command that a call means; warns if a script can't call it so. `is_open`: there may be more arguments.
    fn find_command(&mut self, argv: Argv<'_>, is_open: bool, line: u32) -> Option<&'t Entry<R>> {
        let table = self.table;
        let container = table.find(argv.get(0)?);
        let is_known = argv.get(1).is_some_and(|sub| sub != UNKNOWN);
        if container.is_some_and(|container| !container.sub.is_empty()) && !is_known {
            return None;
        }
        let Some(entry) = table.named_by(argv) else {
            let name = argv.iter().take(1 + usize::from(container.is_some())).map(lossy).collect::<Vec<_>>().join(" ");
            self.warn(line, Rule::BadCommand, format!("there is no command {name}"));
            return None;
        };
        let name = shown(entry);
        if entry.command.flags.has(Flags::NOSCRIPT) {
            self.warn(line, Rule::BadCommand, format!("{name} can't be called from a script"));
        } else if !is_open && !entry.command.accepts(argv.len()) {
            self.warn(line, Rule::BadCommand, format!("{name} does not take so many arguments, or so few"));
        }
        Some(entry)
    }

    /// An argument where a command expects a key.
    fn key(&mut self, entry: &Entry<R>, arg: &Value<'a>, line: u32) {
        self.mark(arg, line, Use::Key);
        let name = shown(entry);
        match arg {
            Value::Literal(key) => {
                let message = format!("the key '{}' of {name} is not declared: pass it in KEYS", lossy(key));
                self.warn(line, Rule::UndeclaredKey, message);
            }
            Value::Computed => {
                let message = format!("a key of {name} is computed, so nobody can know it before: pass it in KEYS");
                self.warn(line, Rule::ComputedKey, message);
            }
            Value::Reply { .. } => {
                let message = format!("a key of {name} was read from the data, so nobody can know it before");
                self.warn(line, Rule::ComputedKey, message);
            }
            Value::Arg(index) => {
                let index = index.map_or("...".to_owned(), |index| index.to_string());
                self.warn(line, Rule::ArgvAsKey, format!("ARGV[{index}] is a key of {name}: pass it in KEYS"));
            }
            Value::Spread(of) => self.key(entry, of, line),
            _ => {}
        }
    }

    /// Warns of what is in KEYS and should not be.
    fn judge_keys(&mut self) {
        for uses in std::mem::take(&mut self.keys).into_values() {
            for (index, KeyUse { line, is_key, is_away, other_line }) in &uses.by_index {
                match other_line {
                    _ if *is_key || *is_away => {}
                    Some(line) => {
                        let message = format!(
                            "KEYS[{index}] is used as an argument and never as a key: pass it in ARGV, for a cluster \
                             routes by all KEYS"
                        );
                        self.warn(*line, Rule::KeyAsArgument, message);
                    }
                    None => self.warn(*line, Rule::UnusedKey, format!("KEYS[{index}] is never used")),
                }
            }
            let last = uses.by_index.last_key_value().map(|(&index, uses)| (index, uses.line));
            let Some((last, line)) = uses.asked.max(last).filter(|_| !uses.is_open) else { continue };
            if let Some(gap) = (1..=last).find(|index| !uses.by_index.contains_key(index)) {
                self.warn(line, Rule::UnusedKey, format!("KEYS[{gap}] is never used, though there are {last} keys"));
            }
        }
    }
}

fn nth<'a>(values: &[Value<'a>], i: usize) -> Value<'a> {
    values.get(i).cloned().unwrap_or(Value::Unknown)
}

fn index(digits: &[u8]) -> Option<u32> {
    num::parse_i64(digits).and_then(|index| u32::try_from(index).ok()).filter(|&index| index > 0)
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A command's name as people write it.
fn shown<R>(entry: &Entry<R>) -> String {
    entry.full_name.to_ascii_uppercase().replace('|', " ")
}

/// Whether a call answers as much as is stored: there is no option that bounds it.
fn reads_all(name: &str, argv: Argv<'_>) -> bool {
    let has = |word: &str| argv.iter().any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    match name {
        "keys" | "smembers" | "sunion" | "sinter" | "sdiff" | "hgetall" | "hkeys" | "hvals" => true,
        "lrange" | "zrange" | "zrevrange" => {
            !has("limit") && argv.get(3) == Some(b"-1") && argv.get(2).is_some_and(|from| !from.starts_with(b"-"))
        }
        "zrangebyscore" | "zrevrangebyscore" | "zrangebylex" | "zrevrangebylex" | "sort" | "sort_ro" => !has("limit"),
        "xrange" | "xrevrange" => !has("count"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::spec::{Access, Command, KeySpec};
    use crate::script::bundled::Bundled;

    const fn command(name: &'static str, arity: i32, flags: Flags, keys: &'static [KeySpec]) -> Command<()> {
        Command { name, arity, flags, keys, ..Command::new(()) }
    }

    const ONE: &[KeySpec] = &[KeySpec::one(1, Access::Update)];
    const ALL: &[KeySpec] = &[KeySpec::rest(1, 1, Access::Delete)];
    const STORE: &[KeySpec] = &[KeySpec::one(1, Access::Overwrite), KeySpec::counted(2, Access::Read)];
    const COMMANDS: &[Command<()>] = &[
        command("get", 2, Flags::READONLY, ONE),
        command("set", -3, Flags::WRITE, ONE),
        command("del", -2, Flags::WRITE, ALL),
        command("smembers", 2, Flags::READONLY, ONE),
        command("lrange", 4, Flags::READONLY, ONE),
        command("zunionstore", -4, Flags::WRITE, STORE),
        command("keys", 2, Flags::READONLY, &[]),
        command("publish", 3, Flags::NONE, &[]),
        command("eval", -3, Flags::NOSCRIPT, &[]),
    ];

    /// The rules that are broken, each behind its line.
    fn found(text: &str) -> String {
        let table = CommandTable::new(&[COMMANDS]);
        let globals =
            ["ipairs", "pairs", "unpack", "tonumber", "tostring", "pcall", "string", "table", "cjson", "math"];
        let warnings = lint(text.as_bytes(), &table, &|name| globals.iter().any(|global| global.as_bytes() == name));
        let warnings = warnings.unwrap_or_else(|error| panic!("{text}: {error}"));
        warnings.iter().map(|warning| format!("{}:{}", warning.line, warning.rule.name())).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_are_followed_to_where_they_are_used() {
        for (text, wanted) in [
            ("return redis.call('get', KEYS[1])", ""),
            ("return redis.call('get', 'a')", "1:undeclared-key"),
            ("return redis.call('get', 'a' .. ARGV[1])", "1:computed-key"),
            ("return redis.call('get', ('a%s'):format(ARGV[1]))", "1:computed-key"),
            ("return redis.call('get', string.format('a%s', ARGV[1]))", "1:computed-key"),
            ("return redis.call('get', ARGV[1])", "1:argv-as-key"),
            ("local id = ARGV[1] or 'none'\nreturn redis.call('get', id)", "2:argv-as-key"),
            ("return redis.call('get', redis.call('get', KEYS[1]))", "1:computed-key"),
            ("return redis.call('get', cjson.decode(ARGV[1]).key)", "1:computed-key"),
            ("return redis.call('del', KEYS[1], 'b', KEYS[2])", "1:undeclared-key"),
            ("return redis.call('del', unpack(KEYS))", ""),
            ("return redis.call('del', unpack(ARGV))", "1:argv-as-key"),
            ("for _, key in ipairs(KEYS) do redis.call('get', key) end", ""),
            ("for i = 1, #KEYS do redis.call('get', KEYS[i]) end", ""),
            ("for _, key in ipairs(ARGV) do redis.call('get', key) end", "1:argv-as-key"),
            ("local call, key = redis.call, KEYS[1]\nreturn call('get', key .. ':lock')", "2:computed-key"),
            ("return pcall(redis.call, 'get', 'a')", "1:undeclared-key"),
            ("return server.pcall('GET', 'a')", "1:undeclared-key"),
            ("local k\nif ARGV[1] then k = KEYS[1] else k = 'x' end\nreturn redis.call('get', k)", ""),
            ("local k = KEYS[1]\nk = k .. ':1'\nreturn redis.call('get', k)", "3:computed-key"),
            ("return redis.call('zunionstore', KEYS[1], 2, KEYS[2], 'b')", "1:undeclared-key"),
            ("return redis.call('zunionstore', KEYS[1], #KEYS - 1, unpack(KEYS, 2))", ""),
            ("return redis.call(ARGV[1], 'a')", ""),
            ("local t = {'a'}\nreturn redis.call('get', t[1])", ""),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn local_functions_are_seen_through() {
        for (text, wanted) in [
            ("local function get(key)\nreturn redis.call('get', key)\nend\nreturn get(KEYS[1])", ""),
            ("local function get(key)\nreturn redis.call('get', key)\nend\nreturn get('a')", "2:undeclared-key"),
            (
                "local get = function(key)\nreturn redis.call('get', key)\nend\nlocal function both(a)\nreturn get(a)\nend\n\
                 return both(ARGV[1])",
                "2:argv-as-key",
            ),
            (
                "local function name(id) return 'a:' .. id end\nreturn redis.call('get', name(ARGV[1]))",
                "2:computed-key",
            ),
            ("local function same(key) return key end\nreturn redis.call('get', same(KEYS[1]))", ""),
            ("local function f(n) if n then return f(n - 1) end end", ""),
            (
                "local function f(n)\nreturn n and f(n - 1) or redis.call('get', 'x')\nend\nreturn f(3)",
                "2:undeclared-key",
            ),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_in_keys_should_be_keys() {
        for (text, wanted) in [
            ("return redis.call('set', KEYS[1], KEYS[2])", "1:key-as-argument"),
            ("redis.call('get', KEYS[2])\nreturn redis.call('set', KEYS[1], KEYS[2])", ""),
            ("if tonumber(KEYS[2]) > 1 then return redis.call('get', KEYS[1]) end", "1:key-as-argument"),
            ("local a, b = KEYS[1], KEYS[2]\nreturn redis.call('get', a)", "1:unused-key"),
            ("redis.call('get', KEYS[1])\nreturn redis.call('get', KEYS[3])", "2:unused-key"),
            ("if #KEYS ~= 2 then return 1 end\nreturn redis.call('get', KEYS[1])", "1:unused-key"),
            ("if #KEYS ~= 1 then return 1 end\nreturn redis.call('get', KEYS[1])", ""),
            ("local t = {}\nt[1] = KEYS[1]\nreturn redis.call('del', unpack(t))", ""),
            ("return redis.call('publish', KEYS[1], 'x')", "1:key-as-argument"),
            ("return KEYS[4000000000]", "1:key-as-argument 1:unused-key"),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn loops_without_bound_should_not_come_before_writes() {
        for (text, wanted) in [
            ("while true do\nredis.call('get', KEYS[1])\nend", ""),
            ("while true do\nredis.call('set', KEYS[1], 1)\nend\nredis.call('set', KEYS[1], 1)", "1:write-after-loop"),
            ("redis.call('set', KEYS[1], 1)\nrepeat local x = 1 until x", ""),
            ("repeat local x = 1 until x\nredis.call('set', KEYS[1], 1)", "1:write-after-loop"),
            ("for i = 1, 10 do redis.call('set', KEYS[1], i) end", ""),
            ("for _, v in ipairs(ARGV) do redis.call('set', KEYS[1], v) end", ""),
            (
                "local all = redis.call('smembers', KEYS[1])\nfor i = 1, #all do\nredis.call('set', KEYS[1], all[i])\nend",
                "2:write-after-loop",
            ),
            (
                "for _, v in ipairs(redis.call('lrange', KEYS[1], 0, -1)) do redis.call('set', KEYS[1], v) end",
                "1:write-after-loop",
            ),
            ("for _, v in ipairs(redis.call('lrange', KEYS[1], 0, 9)) do redis.call('set', KEYS[1], v) end", ""),
            (
                "local function drain()\nwhile redis.call('get', KEYS[1]) do end\nend\ndrain()\nredis.call('del', KEYS[1])",
                "2:write-after-loop",
            ),
            (
                "local function put() redis.call('set', KEYS[1], 1) end\nwhile KEYS[1] do end\nput()",
                "2:write-after-loop",
            ),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn globals_and_commands_are_checked() {
        for (text, wanted) in [
            ("x = 1", "1:global"),
            ("function f() end", "1:global"),
            ("return os", "1:global"),
            ("return redis.call('keys', '*')", "1:whole-keyspace"),
            ("return redis.call('nosuch', KEYS[1])", "1:bad-command"),
            ("return redis.call('eval', 'return 1', 0)", "1:bad-command"),
            ("return redis.call('get')", "1:bad-command"),
            ("return redis.call('set', KEYS[1], unpack(ARGV))", ""),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn functions_of_libraries_have_their_own_keys() {
        for (text, wanted) in [
            (
                "#!lua name=a\nredis.register_function('f', function(keys, args)\nreturn redis.call('get', keys[1])\nend)",
                "",
            ),
            (
                "#!lua name=a\nlocal function f(keys, args)\nreturn redis.call('get', args[1])\nend\nredis.register_function('f', f)",
                "3:argv-as-key",
            ),
            (
                "#!lua name=a\nredis.register_function{function_name='f', callback=function(keys)\nreturn redis.call('set', keys[1], keys[2])\nend}",
                "3:key-as-argument",
            ),
            ("#!lua name=a\nredis.register_function('f', function() return KEYS[1] end)", "2:global"),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn hostile_texts_end() {
        let nested = format!("return {}1{}", "f(".repeat(150), ")".repeat(150));
        let chain = format!("return KEYS{}", "[1]".repeat(50_000));
        let functions = "local function f(a) return f(a) end\n".repeat(3_000);
        let iterators = format!("local a = ipairs(KEYS) {}", "a = ipairs(a) ".repeat(50_000));
        let fields = format!("local a = string {}", "a = a.b ".repeat(50_000));
        let signs = format!("local a = 1 {}", "a = -a ".repeat(50_000));
        let spreads = format!("local a = unpack(KEYS) {}", "a = unpack(a) ".repeat(50_000));
        for text in [nested, chain, functions, iterators, fields, signs, spreads] {
            found(&text);
        }
        let table = CommandTable::new(&[COMMANDS]);
        for script in crate::script::bundled::BUNDLED.iter().map(|bundled: &Bundled| bundled.body) {
            for cut in (0..script.len()).step_by(97) {
                let _ = lint(script.as_bytes().get(..cut).unwrap_or_default(), &table, &|_| true);
            }
        }
    }
}
