//! The walk through a program's tree: resolves each name and follows each value. It checks [`Rule::Global`] and
//! [`Rule::WholeKeyspace`] itself, and leaves the other rules to its sibling modules.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::commands::{self, UNKNOWN, key_fault, lossy, reads_all};
use super::differences;
use super::flow::Flow;
use super::keys::{Keys, Use};
use super::parse::{Block, Class, Expr, ExprKind, Function, Name, Statement, StatementKind, Suffix};
use super::value::{Value, index, nth};
use super::warning::{Rule, Warning};
use crate::resp::request::OwnedArgv;
use crate::spec::Flags;
use crate::spec::table::CommandTable;

/// Facts about a function that has been walked.
#[derive(Default)]
struct Known<'a> {
    /// Arguments of its calls in the previous walk, by parameter.
    args: Vec<Value<'a>>,
    /// Arguments of its calls in this walk, by parameter.
    passed: Vec<Value<'a>>,
    /// Its first result.
    result: Option<Value<'a>>,
    flow: Flow,
    /// It calls `coroutine.yield`.
    yields: bool,
    /// A library registers it, so clients call it.
    is_entry: bool,
}

struct Local<'a> {
    name: Name<'a>,
    value: Value<'a>,
    depth: usize,
}

/// A loop over the keys of a table: the indices of both variables among the locals in scope.
struct PairsLoop {
    table: usize,
    key: usize,
}

/// The state of the walk, with its results so far.
pub(super) struct Linter<'t, 'a, R: 'static> {
    table: &'t CommandTable<R>,
    is_global: &'t dyn Fn(&[u8]) -> bool,
    is_library: bool,
    /// Locals in scope, the innermost last.
    locals: Vec<Local<'a>>,
    /// Open loops, the innermost last.
    pairs_loops: Vec<PairsLoop>,
    /// Number of open blocks.
    depth: usize,
    /// Functions by their number.
    functions: BTreeMap<usize, Known<'a>>,
    /// The function being walked.
    current: usize,
    keys: Keys,
    flow: Flow,
    warnings: BTreeSet<Warning>,
}

impl<'t, 'a, R> Linter<'t, 'a, R> {
    /// Returns a linter that has walked nothing yet.
    pub(super) fn new(table: &'t CommandTable<R>, is_global: &'t dyn Fn(&[u8]) -> bool, is_library: bool) -> Self {
        Linter {
            table,
            is_global,
            is_library,
            locals: Vec::new(),
            pairs_loops: Vec::new(),
            depth: 0,
            functions: BTreeMap::new(),
            current: 0,
            keys: Keys::default(),
            flow: Flow::default(),
            warnings: BTreeSet::new(),
        }
    }

    /// Walks the program from its beginning, with the facts about its functions from the previous walk.
    pub(super) fn walk(&mut self, program: &Function<'a>) {
        self.keys = Keys::default();
        self.warnings.clear();
        self.functions.values_mut().for_each(|known| known.args = std::mem::take(&mut known.passed));
        self.function(program);
    }

    /// Returns the warnings of the last walk.
    pub(super) fn into_warnings(mut self) -> BTreeSet<Warning> {
        self.warnings.extend(self.keys.judge());
        self.warnings
    }

    fn warn(&mut self, line: u32, rule: Rule, message: impl Into<String>) {
        self.warnings.insert(Warning { line, rule, message: message.into() });
    }

    /// Walks a function's body with the known values of its arguments.
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
                for (i, target) in targets.iter().enumerate() {
                    let is_nil = matches!(values.get(i), None | Some(Expr { kind: ExprKind::Nil, .. }));
                    if let Some((table, key)) = differences::element(target).filter(|_| !is_nil) {
                        self.grow(table, Some(key), target.line);
                    }
                }
                let values = self.values(values);
                targets.iter().enumerate().for_each(|(i, target)| self.assign(target, nth(&values, i)));
            }
            StatementKind::Call(call) => {
                self.value(call);
            }
            StatementKind::Do(body) => self.block(body),
            StatementKind::While { condition, body } => {
                self.test(condition);
                self.flow.open_loop(*line);
                self.block(body);
            }
            StatementKind::Repeat { body, condition } => {
                self.flow.open_loop(*line);
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
                    self.flow.open_loop(*line);
                }
                bounds.iter().for_each(|bound| self.keys.mark(bound, *line, Use::Other));
                self.loop_body(&[name], &[Value::Unknown], body);
            }
            StatementKind::GenericFor { names, values, body } => {
                let is_global = self.place(b"pairs").is_none() && self.place(b"next").is_none();
                let visited = differences::visited(values).filter(|_| is_global).and_then(|name| self.place(name));
                let values = self.values(values);
                self.refuse_yield(&nth(&values, 0), *line);
                let element = match values.first() {
                    Some(Value::Iterator(of)) => {
                        if **of == (Value::Reply { is_unbounded: true }) {
                            self.flow.open_loop(*line);
                        }
                        of.element()
                    }
                    _ => Value::Unknown,
                };
                let open = self.pairs_loops.len();
                self.pairs_loops.extend(visited.map(|table| PairsLoop { table, key: self.locals.len() }));
                self.loop_body(names, &[Value::Unknown, element], body);
                self.pairs_loops.truncate(open);
            }
            StatementKind::Return(values) => {
                let values = self.values(values);
                let known = self.functions.entry(self.current).or_default();
                if self.current == 0 || known.is_entry {
                    return values.iter().for_each(|value| self.keys.mark(value, *line, Use::Other));
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
        self.keys.mark(&value, condition.line, Use::Other);
    }

    fn assign(&mut self, target: &Expr<'a>, value: Value<'a>) {
        match &target.kind {
            ExprKind::Name(name) => {
                let depth = self.depth;
                let Some(local) = self.locals.iter_mut().rev().find(|local| local.name == *name) else {
                    self.keys.mark(&value, target.line, Use::Away);
                    let message =
                        format!("the global '{}' is assigned, which is an error: declare it with local", lossy(name));
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
            kind => {
                if let ExprKind::Suffixed(_, suffixes) = kind
                    && let Some(Suffix::Index(Expr { kind: ExprKind::Text(field), .. })) = suffixes.last()
                    && differences::is_metamethod(field)
                {
                    self.refuse_yield(&value, target.line);
                }
                self.value(target);
                self.keys.mark(&value, target.line, Use::Away);
            }
        }
    }

    /// The index of the variable of this name among the locals in scope.
    fn place(&self, name: Name<'a>) -> Option<usize> {
        self.locals.iter().rposition(|local| local.name == name)
    }

    /// Notes an assignment to a key of a table. Warns if a loop over the table is open and the key isn't its current
    /// one.
    fn grow(&mut self, table: Name<'a>, key: Option<&Expr<'a>>, line: u32) {
        let key = key.and_then(differences::name).and_then(|name| self.place(name));
        let table = self.place(table);
        let mut visits = self.pairs_loops.iter().filter(|open| Some(open.table) == table).peekable();
        if visits.peek().is_some() && visits.all(|open| Some(open.key) != key) {
            self.warn(line, Rule::DiffersOnRedis, differences::GROWS_IN_PAIRS);
        }
    }

    /// Warns if `value`, a metamethod or the iterator of a loop, yields.
    fn refuse_yield(&mut self, value: &Value<'a>, line: u32) {
        if let Value::Function(number) = value
            && self.functions.get(number).is_some_and(|known| known.yields)
        {
            self.warn(line, Rule::DiffersOnRedis, differences::YIELDS);
        }
    }

    fn note_key(&mut self, key: &Value<'a>, line: u32) {
        if key.has_address() {
            self.warn(line, Rule::DiffersOnRedis, differences::KEY_BY_ADDRESS);
        }
    }

    /// Notes that the keys among several alternative values can't be followed further.
    fn lose_joined(&mut self, values: &[Value<'a>], joined: &Value<'a>, line: u32) {
        for value in values.iter().filter(|value| *value != joined) {
            self.keys.mark(value, line, Use::Away);
        }
    }

    fn values(&mut self, exprs: &[Expr<'a>]) -> Vec<Value<'a>> {
        exprs.iter().map(|expr| self.value(expr)).collect()
    }

    fn value(&mut self, expr: &Expr<'a>) -> Value<'a> {
        let line = expr.line;
        match &expr.kind {
            ExprKind::Nil | ExprKind::Boolean => Value::Constant,
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
                    key.iter().for_each(|key| self.note_key(key, line));
                    if matches!(&key, Some(Value::Literal(field)) if differences::is_metamethod(field)) {
                        self.refuse_yield(&value, line);
                    }
                    key.iter().chain([&value]).for_each(|value| self.keys.mark(value, line, Use::Away));
                }
                Value::Object
            }
            ExprKind::Length(of) => match self.value(of) {
                Value::Keys(of) => Value::KeyCount(of),
                reply @ Value::Reply { .. } => reply,
                value => {
                    self.keys.mark(&value, line, Use::Other);
                    Value::Computed
                }
            },
            ExprKind::Unary(of) => match self.value(of) {
                Value::Literal(digits) if !digits.starts_with(b"-") => {
                    Value::Literal([b"-".as_slice(), &digits].concat().into())
                }
                value => {
                    self.keys.mark(&value, line, Use::Other);
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
            b"redis" | b"server" => {
                if let Some(message) = differences::of_global(name) {
                    self.warn(line, Rule::DiffersOnRedis, message);
                }
                Value::Redis
            }
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
                tests.iter().for_each(|value| self.keys.mark(value, line, Use::Other));
                last.clone()
            }
            Class::Compare => {
                if let [Value::KeyCount(of), Value::Literal(digits)] | [Value::Literal(digits), Value::KeyCount(of)] =
                    &values[..]
                    && let Some(count) = index(digits)
                {
                    self.keys.ask(*of, count, line);
                }
                values.iter().for_each(|value| self.keys.mark(value, line, Use::Other));
                Value::Constant
            }
            Class::Concat | Class::Arithmetic => {
                let usage = if class == Class::Concat { Use::Away } else { Use::Other };
                values.iter().for_each(|value| self.keys.mark(value, line, usage));
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
                args.iter().chain([&value]).for_each(|value| self.keys.mark(value, *line, Use::Away));
                if matches!(value, Value::Unknown | Value::Object) { Value::Unknown } else { Value::Computed }
            }
            Suffix::Call { line, method: None, args } => self.called(value, args, *line),
        }
    }

    fn indexed(&mut self, value: Value<'a>, key: Value<'a>, line: u32) -> Value<'a> {
        let literal = if let Value::Literal(literal) = &key { Some(&**literal) } else { None };
        match (value, literal) {
            (Value::Keys(of), Some(digits)) => {
                let index = index(digits);
                self.keys.name(of, index, line);
                Value::Key(of, index)
            }
            (Value::Args, Some(digits)) => Value::Arg(index(digits)),
            (Value::Redis, Some(b"call" | b"pcall")) => Value::Call,
            (Value::Redis, Some(b"register_function")) => Value::Register,
            (Value::Redis, Some(name)) => self.field(b"redis", name, line),
            (Value::Global(library), Some(name)) if !library.contains(&b'.') => self.field(&library, name, line),
            (value, _) => {
                if let Value::Keys(of) = value {
                    self.keys.name(of, None, line);
                }
                self.keys.mark(&key, line, Use::Away);
                self.note_key(&key, line);
                value.element()
            }
        }
    }

    /// The field `name` of a library of the sandbox.
    fn field(&mut self, library: &[u8], name: &[u8], line: u32) -> Value<'a> {
        let name = [library, b".", name].concat();
        if let Some(message) = differences::of_global(&name) {
            self.warn(line, Rule::DiffersOnRedis, message);
        }
        Value::Global(name.into())
    }

    fn called(&mut self, function: Value<'a>, args: &[Expr<'a>], line: u32) -> Value<'a> {
        if function == Value::Register {
            return self.register(args);
        }
        if let (Value::Global(name), Some(table)) = (&function, args.first())
            && matches!(&**name, b"table.insert" | b"rawset")
            && let Some(table) = differences::name(table)
        {
            self.grow(table, args.get(1).filter(|_| **name == *b"rawset"), line);
        }
        let args = self.values(args);
        match &function {
            Value::Call => self.command(&args, line),
            Value::Function(number) => self.call_local(*number, args),
            Value::Global(name) => self.call_global(name, args, line),
            _ => {
                args.iter().for_each(|arg| self.keys.mark(arg, line, Use::Away));
                Value::Unknown
            }
        }
    }

    /// A call of a function of this text: notes its arguments, adopts the function's flow, and returns its result.
    fn call_local(&mut self, number: usize, args: Vec<Value<'a>>) -> Value<'a> {
        let known = self.functions.entry(number).or_default();
        for (i, arg) in args.into_iter().enumerate() {
            match known.passed.get_mut(i) {
                None => known.passed.push(arg),
                Some(known) => *known = std::mem::replace(known, Value::Unknown).join(arg),
            }
        }
        let (flow, result, yields) = (known.flow.clone(), known.result.clone(), known.yields);
        self.functions.entry(self.current).or_default().yields |= yields;
        let warning = self.flow.call(&flow);
        self.warnings.extend(warning);
        result.unwrap_or(Value::Unknown)
    }

    fn call_global(&mut self, name: &[u8], mut args: Vec<Value<'a>>, line: u32) -> Value<'a> {
        if let Some(message) = differences::of_call(name, &args) {
            self.warn(line, Rule::DiffersOnRedis, message);
        }
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
            b"coroutine.create" => return Value::Object,
            b"coroutine.yield" => {
                self.functions.entry(self.current).or_default().yields = true;
                Use::Away
            }
            _ if [b"math.".as_slice(), b"cjson.", b"cmsgpack.", b"redis."].iter().any(|of| name.starts_with(of)) => {
                Use::Other
            }
            _ => Use::Away,
        };
        args.iter().for_each(|arg| self.keys.mark(arg, line, usage));
        match (name, args.first()) {
            (b"tonumber", Some(value @ (Value::Arg(_) | Value::Reply { .. }))) => value.clone(),
            (_, _) if name.contains(&b'.') && !name.starts_with(b"table.") || name == b"tonumber" => Value::Computed,
            _ => Value::Unknown,
        }
    }

    /// `redis.register_function`, in either form. Clients call the registered function with its keys and arguments.
    fn register(&mut self, args: &[Expr<'a>]) -> Value<'a> {
        let callback = match args {
            [Expr { kind: ExprKind::Table(fields), .. }] => {
                let is_callback = |key: &Option<Expr<'a>>| match key {
                    Some(Expr { kind: ExprKind::Text(name), .. }) => **name == *b"callback",
                    _ => false,
                };
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
            Some(Value::Literal(_)) => {
                let (entry, fault) = commands::find(self.table, argv, is_open);
                fault.into_iter().for_each(|fault| self.warn(line, Rule::BadCommand, fault));
                entry
            }
            _ => None,
        };
        let Some(entry) = entry else {
            args.iter().for_each(|arg| self.keys.mark(arg, line, Use::Away));
            return answer;
        };
        let command = entry.command;
        let keys = if command.has_keys() { self.table.keys_of(command, argv) } else { Some(Vec::new()) };
        for (i, arg) in args.iter().enumerate() {
            match &keys {
                None => self.keys.mark(arg, line, Use::Away),
                Some(keys) if keys.iter().any(|key| key.index == i) => {
                    self.keys.mark(arg, line, Use::Key);
                    key_fault(entry, arg).into_iter().for_each(|(rule, message)| self.warn(line, rule, message));
                }
                Some(_) => self.keys.mark(arg, line, Use::Other),
            }
        }
        if command.flags.contains(Flags::WRITE) {
            let warning = self.flow.write();
            self.warnings.extend(warning);
        }
        if command.flags.contains(Flags::VISITS_ALL_KEYS) {
            self.warn(line, Rule::WholeKeyspace, "KEYS visits every key of the database while all other clients wait");
        }
        Value::Reply { is_unbounded: reads_all(command.answers_all, argv) }
    }
}
