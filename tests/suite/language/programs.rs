//! Random programs in Lua 5.1: each construct of the language and each function of a script's libraries, with
//! borderline values.
//!
//! A [`Writer`] has one function for each syntactic class. It tracks the locals in scope, whether `...` is allowed, and
//! its depth; otherwise it ignores types, so that programs fail in many ways. Texts that do not compile come from
//! [`broken`], which spoils a token.
//!
//! Programs end by construction. Numeric loops have a few rounds. A loop over a table, and a function with calls, first
//! ask [`PROLOGUE`]'s `spent`, which is true from the 80th time on: a table may grow while it is visited, and a
//! function may call itself. Counts of repetitions and positions are never random values, and no table gets keys that
//! double far enough for `#` to find a border in the billions.
//!
//! Results do not depend on time, chance, addresses or earlier programs. Tables as keys are the exception, which the
//! caller must handle.

use crate::differential::generate::Dice;

/// The first line of each program, which bounds loops and recursion.
const PROLOGUE: &str = "local steps = 0 local function spent() steps = steps + 1 return steps > 80 end";

/// The depth from which on an expression is a name or a literal.
const MAX_DEPTH: usize = 4;

/// A program.
pub(super) fn program(dice: &mut Dice) -> String {
    Writer::new(dice).program()
}

/// A program that builds a table of literals, changes it, and returns it with its encodings by `cjson` and `cmsgpack`.
/// Its keys are texts, numbers and booleans.
pub(super) fn table_program(dice: &mut Dice) -> String {
    let mut writer = Writer::new(dice);
    let mut text = format!("local t = {}\n", writer.plain_table(0));
    for _ in 0..writer.dice.below(4) {
        text += &writer.growth("t");
        text.push('\n');
    }
    text + "local function hex(s) return (s:gsub('.', function(c) return ('%02x'):format(c:byte()) end)) end\n\
            local packed = cmsgpack.pack(t)\n\
            local fine, json = pcall(cjson.encode, t)\n\
            return t, json, hex(packed), cmsgpack.unpack(packed), fine and cjson.decode(json), #t, table.maxn(t)"
}

/// A program with one token spoilt. Usually it no longer compiles.
pub(super) fn broken(program: &str, dice: &mut Dice) -> String {
    const STRAY: &[&str] = &[
        "end",
        "then",
        "(",
        ")",
        "{",
        "}",
        "=",
        "..",
        "~",
        "!",
        "&",
        "|",
        "goto",
        "break",
        "return",
        "\\",
        "1x",
        "\"abc",
        "[[",
        "--",
        "--[[",
        "@",
        "$",
        "`",
        "?",
        ";",
        ";;",
        "function",
        "...",
        "local",
        "#",
        "\"\\400\"",
        "'\\q'",
        "\n",
        "\r",
        "0x",
        "3..2",
        ".5.",
        "[==[",
        "]]",
        "::x::",
        "//",
        "<<",
        "!=",
        "+=",
        "1e",
        "1e+",
        "0b1",
        "1LL",
        "\u{e9}",
        "\"a\nb\"",
        "until",
        "elseif",
        "not",
        "and",
        "nil",
        "in",
        "do",
        "%",
        "^",
        ":",
        ",",
        "0x1p",
        "\"\\\nb\"",
    ];
    let mut tokens = tokens(program);
    if tokens.is_empty() {
        return "end".to_owned();
    }
    let at = dice.below(tokens.len());
    match dice.below(6) {
        0 => drop(tokens.remove(at)),
        1 | 2 => tokens.insert(at, STRAY[dice.below(STRAY.len())]),
        3 => tokens[at] = tokens[dice.below(tokens.len())],
        4 => tokens.truncate(at),
        _ => tokens.swap(at, at.saturating_sub(1)),
    }
    tokens.concat()
}

/// The program's words, strings, marks and gaps; joined together they are the program.
pub(super) fn tokens(mut program: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    while let Some(first) = program.chars().next() {
        let run = |is_of: fn(char) -> bool| program.find(|c| !is_of(c)).unwrap_or(program.len());
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match first {
            ' ' | '\n' => run(|c| c == ' ' || c == '\n'),
            '"' => program[1..].find('"').map_or(program.len(), |end| end + 2),
            _ if is_word(first) => run(|c: char| c.is_ascii_alphanumeric() || c == '_'),
            _ => first.len_utf8(),
        };
        let (token, rest) = program.split_at(length);
        tokens.push(token);
        program = rest;
    }
    tokens
}

/// Writes a program; holds the names in scope at its current place.
struct Writer<'a> {
    dice: &'a mut Dice,
    /// Locals in scope; a name listed twice is drawn more often.
    names: Vec<&'static str>,
    /// Whether `...` is allowed, for each enclosing function.
    varargs: Vec<bool>,
    /// Enclosing loops in the innermost function.
    loops: usize,
    /// Whether the innermost function calls another one.
    calls: bool,
}

impl<'a> Writer<'a> {
    fn new(dice: &'a mut Dice) -> Writer<'a> {
        Writer { dice, names: vec!["a", "b", "c"], varargs: vec![true], loops: 0, calls: false }
    }

    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[self.dice.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.dice.below(100) < percent
    }

    /// A blank between two tokens, or now and then a new line, so that errors are told apart by line, or a comment.
    fn gap(&mut self) -> &'static str {
        self.one(&[" ", " ", " ", " ", " ", " ", " ", "\n", "\n", " --[[ c\n ]] ", " -- c\n"])
    }

    fn joined(&mut self, count: usize, separator: &str, mut part: impl FnMut(&mut Self) -> String) -> String {
        (0..count).map(|_| part(self)).collect::<Vec<_>>().join(separator)
    }

    fn program(&mut self) -> String {
        let mut text = format!("{PROLOGUE}\n");
        for name in ["a", "b", "c"] {
            let value = match self.dice.below(8) {
                0..3 => self.table(1),
                3 => self.plain_table(1),
                4 => self.number(),
                5 => self.text(),
                6 => self.function(2),
                _ => "nil".to_owned(),
            };
            text += &format!("local {name} = {value}\n");
        }
        let statements = 1 + self.dice.below(5);
        text += &self.block(0, statements);
        let results = 1 + self.dice.below(3);
        let results = self.joined(results, ", ", |w| w.expression(1));
        format!("{text}return {results}{}", self.one(&["", ", a, b, c"]))
    }

    // Literals and names.

    fn number(&mut self) -> String {
        match self.dice.below(20) {
            0..10 => self.dice.below(9).to_string(),
            10 | 11 => self
                .one(&[
                    "0",
                    "255",
                    "256",
                    "257",
                    "65535",
                    "65536",
                    "2147483647",
                    "2147483648",
                    "4294967296",
                    "9007199254740992",
                    "9007199254740993",
                    "1000000000000000",
                    "99999999999999",
                    "100000000000000",
                    "9223372036854775807",
                ])
                .to_owned(),
            12 | 13 => self
                .one(&[
                    "0.5",
                    "1.5",
                    "1e3",
                    "1e308",
                    ".25",
                    "3.",
                    "0x1F",
                    "1e-5",
                    "0xffffffff",
                    "0x7fffffffffffffff",
                    "5e-324",
                    "1e15",
                    "123456.789e3",
                    "0.1",
                    "1e100",
                    "0X1p4",
                    "1E+2",
                    "2.5e-3",
                    "0xAp8",
                ])
                .to_owned(),
            14 => format!("-{}", self.dice.below(6)),
            15 => self
                .one(&["-0", "0/0", "1/0", "-1/0", "(-0)", "-(0/0)", "2^53", "2^31", "-2^63", "1e308*10", "2^-1074"])
                .to_owned(),
            16 => self.one(&["0.1+0.2", "1/3", "100/3", "-1.5", "2^52+0.5", "1e21"]).to_owned(),
            _ => self.dice.below(61).to_string(),
        }
    }

    /// A literal string: many can be read as numbers, some have escapes unknown to Lua.
    fn text(&mut self) -> String {
        match self.dice.below(8) {
            0 => format!("\"key{}\"", self.dice.below(100)),
            1 => format!("'k{}'", self.dice.below(31)),
            _ => self
                .one(&[
                    "\"a\"",
                    "\"b\"",
                    "'c'",
                    "\"x\"",
                    "\"y\"",
                    "\"n\"",
                    "\"abc\"",
                    "\"10\"",
                    "\"0x10\"",
                    "\" 5 \"",
                    "\"\"",
                    "\"err\"",
                    "\"ok\"",
                    " [[z]]",
                    "\"a\\0b\"",
                    "\"1e2\"",
                    "\"\\065\"",
                    "\"nan\"",
                    "\"-0\"",
                    "'inf'",
                    "'-inf'",
                    "'1\\0'",
                    "'0x'",
                    "'1e'",
                    "' 0x1p4\\n'",
                    "'1 2'",
                    "'\\.'",
                    "'\\q%'",
                    "\"\\x23\"",
                    "'\\z  a'",
                    "'\\u{48}'",
                    " [==[]]\n\\]==]",
                    " [[\nz]]",
                    "'\\\n'",
                    "'\\a\\b\\f\\n\\r\\t\\v\\\\\\\"\\''",
                    "'\\255\\1'",
                    "'a b  c'",
                    "'k=v, k2=v2'",
                    "'%d'",
                    "'hello world'",
                    "\"\\195\\169\"",
                    "'1e308'",
                    "'9007199254740993'",
                    "'__index'",
                    "'aaa'",
                    "'.5'",
                    "'5.'",
                    "'[1]'",
                ])
                .to_owned(),
        }
    }

    fn name(&mut self) -> &'static str {
        self.names[self.dice.below(self.names.len())]
    }

    fn field(&mut self) -> String {
        match self.dice.below(9) {
            8 => format!("k{}", self.dice.below(31)),
            _ => self.one(&["a", "b", "c", "x", "y", "n", "err", "ok"]).to_owned(),
        }
    }

    fn rest(&mut self) -> String {
        if self.varargs.last() == Some(&true) { "...".to_owned() } else { self.name().to_owned() }
    }

    /// Generates `part` inside a function that does not take `...`.
    fn without_rest<T>(&mut self, part: impl FnOnce(&mut Self) -> T) -> T {
        self.varargs.push(false);
        let part = part(self);
        self.varargs.pop();
        part
    }

    // Expressions.

    fn expression(&mut self, depth: usize) -> String {
        let kinds = if depth > MAX_DEPTH { 45 } else { 104 };
        match self.dice.below(kinds) {
            0..15 => self.number(),
            15..22 => self.text(),
            22..40 => self.name().to_owned(),
            40..43 => self.one(&["nil", "true", "false", "nil"]).to_owned(),
            43..45 => self.rest(),
            45..53 => format!("{}.{}", self.base(depth), self.field()),
            53..58 => format!("{}[{}]", self.base(depth), self.expression(depth + 1)),
            58..70 => self.table(depth + 1),
            70..80 => self.binary(depth),
            80..84 => format!("{}{}", self.one(&["- ", "not ", "#"]), self.operand(depth + 1)),
            84..89 => self.call(depth + 1),
            89..93 => self.function(depth + 1),
            93..95 => format!("({})", self.expression(depth + 1)),
            _ => self.library_call(depth + 1),
        }
    }

    /// The expression before a field access.
    fn base(&mut self, depth: usize) -> String {
        match self.dice.below(12) {
            0..8 => self.name().to_owned(),
            8 => format!("{}.{}", self.name(), self.field()),
            9 => format!("({} {} {})", self.name(), self.one(&["and", "or"]), self.name()),
            10 if depth <= MAX_DEPTH => format!("({})", self.binary(depth + 1)),
            _ if depth <= MAX_DEPTH => format!("({})", self.call(depth + 1)),
            _ => self.name().to_owned(),
        }
    }

    fn binary(&mut self, depth: usize) -> String {
        const OPERATORS: &[&str] =
            &["+", "-", "*", "/", "%", "^", "..", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or", "and", "or"];
        let (left, before, operator) = (self.operand(depth + 1), self.gap(), self.one(OPERATORS));
        format!("{left}{before}{operator}{}{}", self.gap(), self.operand(depth + 1))
    }

    fn operand(&mut self, depth: usize) -> String {
        let operand = self.expression(depth);
        if self.chance(30) { format!("({operand})") } else { operand }
    }

    fn list(&mut self, depth: usize) -> String {
        let count = *self.dice.pick(&[0, 1, 1, 1, 2, 2, 3]);
        let gap = self.one(&[",", ", ", ",\n"]);
        self.joined(count, gap, |w| w.expression(depth + 1))
    }

    /// Like [`Self::list`], with at least one expression.
    fn some(&mut self, depth: usize) -> String {
        let count = 1 + self.dice.below(2);
        self.joined(count, ",", |w| w.expression(depth + 1))
    }

    fn call(&mut self, depth: usize) -> String {
        self.calls = true;
        let callee = match self.dice.below(10) {
            0..5 => self.name().to_owned(),
            5 | 6 => format!("{}.{}", self.base(depth), self.field()),
            7 => format!("{}:{}", self.base(depth), self.field()),
            8 => format!("({})", self.function(depth + 1)),
            _ => format!("({})", self.expression(depth + 1)),
        };
        match self.dice.below(20) {
            0..17 => format!("{callee}({})", self.list(depth)),
            17 | 18 => format!("{callee}{}", self.table(depth + 1)),
            _ => format!("{callee}{}", self.text()),
        }
    }

    fn function(&mut self, depth: usize) -> String {
        format!("function{}", self.function_body(depth))
    }

    /// Parameters, statements, results and `end`.
    fn function_body(&mut self, depth: usize) -> String {
        let mut left = vec!["a", "b", "p", "q", "self"];
        let parameters: Vec<_> = (0..self.dice.below(4)).map(|_| left.remove(self.dice.below(left.len()))).collect();
        let is_vararg = self.chance(40);
        // A function has an `arg` if it is vararg and its body has no `...`.
        let has_arg = is_vararg && self.chance(50);
        let outer = (self.names.clone(), self.loops, self.calls);
        (self.loops, self.calls) = (0, false);
        let says_rest = is_vararg && (!has_arg || self.chance(20));
        self.varargs.push(says_rest);
        self.names.extend(&parameters);
        if has_arg {
            self.names.extend(["arg", "arg"]);
        }
        let statements = self.dice.below(3);
        let body = self.block(depth + 1, statements);
        let results = self.list(depth + 1);
        let guard = if self.calls { "if spent() then return end " } else { "" };
        (self.names, self.loops, self.calls) = outer;
        self.varargs.pop();
        let mut parameters = parameters;
        parameters.extend(is_vararg.then_some("..."));
        format!("({}){}{guard}{body}{}return {results}{}end", parameters.join(","), self.gap(), self.gap(), self.gap())
    }

    // Tables.

    fn table(&mut self, depth: usize) -> String {
        let mut count = *self.dice.pick(&[0, 1, 2, 2, 3, 3, 4, 5, 6]);
        if self.chance(3) {
            count = 10 + self.dice.below(60);
        }
        let mut items: Vec<String> = (0..count).map(|_| self.item(depth, count >= 10)).collect();
        if self.varargs.last() == Some(&true) && self.chance(12) {
            items.push("...".to_owned());
        } else if self.chance(6) {
            items.push(self.call(depth + 1));
        }
        self.constructor(items)
    }

    fn constructor(&mut self, items: Vec<String>) -> String {
        let separator = self.one(&[",", ", ", ";", ",\n"]);
        let end = if items.is_empty() { "" } else { self.one(&["", ","]) };
        format!("{{{}{end}}}", items.join(separator))
    }

    fn item(&mut self, depth: usize, is_one_of_many: bool) -> String {
        match self.dice.below(100) {
            0..50 if is_one_of_many && !self.chance(20) => self.number(),
            0..50 => self.expression(depth + 1),
            50..75 => {
                let value = if self.chance(60) { self.expression(depth + 1) } else { self.plain_value() };
                format!("{}={value}", self.field())
            }
            75..92 => {
                let value = if self.chance(60) { self.expression(depth + 1) } else { self.number() };
                format!("[{}]={value}", self.plain_key())
            }
            _ => format!("[{}]={}", self.expression(depth + 1), self.expression(depth + 1)),
        }
    }

    fn plain_value(&mut self) -> String {
        match self.dice.below(4) {
            0 => "nil".to_owned(),
            1 => self.number(),
            2 => self.text(),
            _ => self.one(&["true", "false"]).to_owned(),
        }
    }

    fn plain_key(&mut self) -> String {
        match self.dice.below(8) {
            // NaN cannot be a key.
            0 => self.one(&["0", "-0", "-1", "0.5", "2^53", "1/0", "1e308", "-2^31", "1.5", "65536"]).to_owned(),
            1 => self.text(),
            2 => self.one(&["true", "false"]).to_owned(),
            3 | 4 => (1 + self.dice.below(4)).to_string(),
            _ => self.dice.below(20).to_string(),
        }
    }

    /// A table of literals alone.
    fn plain_table(&mut self, depth: usize) -> String {
        let count = if self.chance(12) { 20 + self.dice.below(60) } else { self.dice.below(9) };
        let kind = self.dice.below(4);
        let items = (0..count)
            .map(|_| {
                let value = match depth {
                    0..3 if self.chance(15) => self.plain_table(depth + 1),
                    _ => self.plain_value(),
                };
                match if kind == 3 { self.dice.below(3) } else { kind } {
                    0 => value,
                    1 => format!("{}={value}", self.field()),
                    _ => format!("[{}]={value}", self.plain_key()),
                }
            })
            .collect();
        self.constructor(items)
    }

    /// A loop that grows or shrinks a table by keys of one kind.
    fn growth(&mut self, table: &str) -> String {
        let (from, to, step) = match self.dice.below(6) {
            0 => (-(self.dice.below(12) as i64), self.dice.below(12) as i64, 1),
            1 => (self.dice.below(40) as i64, 1, -1),
            2 => (1, self.dice.below(70) as i64, 2),
            _ => (1, self.dice.below(40) as i64, 1),
        };
        const KEYS: &[&str] = &[
            "i",
            "i",
            "i",
            "i*2",
            "i%3",
            "-i",
            "i-1",
            "'k'..i",
            "'key'..i*i",
            "i*i",
            "20-i",
            "i/2",
            "i/4",
            "i%2 == 0",
            "2^(i%12)",
            "i..''",
            "0-i",
        ];
        const VALUES: &[&str] =
            &["i", "i", "nil", "nil", "i>3 or nil", "'v'..i", "i%3 ~= 0 and i or nil", "{}", "{i}", "true"];
        format!("for i = {from}, {to}, {step} do {table}[{}] = {} end", self.one(KEYS), self.one(VALUES))
    }

    /// A metatable.
    fn metatable(&mut self, depth: usize) -> String {
        const EVENTS: &[&str] = &[
            "__index",
            "__index",
            "__newindex",
            "__call",
            "__add",
            "__concat",
            "__eq",
            "__lt",
            "__le",
            "__len",
            "__unm",
            "__mod",
            "__tostring",
            "__div",
            "__sub",
            "__metatable",
            "__mul",
            "__pow",
        ];
        const HANDLERS: &[&str] = &[
            "function(...) return ... end",
            "function(x,y) return y end",
            "function(x) return 7 end",
            "function(x) return 'text' end",
            "function(a,b) return a==b end",
            "function(x,y) return type(x)..type(y) end",
            "function(...) return arg.n end",
            "function(t,k) error('no '..tostring(k)) end",
            "function(t,k,v) rawset(t,k,v and 1) end",
            "{a=1,b=2}",
            "nil",
            "rawset",
            "rawget",
            "'text'",
        ];
        let count = self.dice.below(4);
        let items = (0..count)
            .map(|_| {
                let handler = if self.chance(10) { self.table(depth + 2) } else { self.one(HANDLERS).to_owned() };
                format!("{}={handler}", self.one(EVENTS))
            })
            .collect();
        self.constructor(items)
    }

    // Calls of the libraries.

    fn library_call(&mut self, depth: usize) -> String {
        self.calls = true;
        match self.dice.below(12) {
            0..3 => self.basic_call(depth),
            3 => self.protected_call(depth),
            4 | 5 => self.string_call(depth),
            6 => self.formatted(depth),
            7 => self.matched(depth),
            8 => self.table_call(depth),
            9 => self.math_call(depth),
            10 => self.coroutine_call(depth),
            _ => self.encoded(depth),
        }
    }

    fn basic_call(&mut self, depth: usize) -> String {
        match self.dice.below(17) {
            0 => format!("select('#',{})", self.some(depth)),
            1 => format!("tostring({})", self.expression(depth + 1)),
            2 => format!("tonumber({})", self.expression(depth + 1)),
            3 => format!("type({})", self.list(depth)),
            4 => {
                format!("unpack({}{})", self.expression(depth + 1), self.one(&["", "", ",1,3", ",2", ",-1,1", ",3,1"]))
            }
            5 => format!("next({})", self.some(depth)),
            6 => format!("setmetatable({},{})", self.table(depth), self.metatable(depth)),
            7 => format!("getmetatable({})", self.expression(depth + 1)),
            8 => format!("rawget({},{})", self.table(depth), self.expression(depth + 1)),
            9 => format!("select({},{})", self.number(), self.list(depth)),
            10 => {
                format!(
                    "tonumber({},{})",
                    self.expression(depth + 1),
                    self.one(&["2", "8", "10", "16", "36", "37", "1"])
                )
            }
            11 => format!("loadstring({})", self.list(depth)),
            12 => format!("rawequal({})", self.list(depth)),
            13 => format!("#{}", self.table(depth)),
            14 => format!("rawset({},{})", self.table(depth), self.list(depth)),
            15 => self
                .one(&["undefined", "KEYS[1]", "#KEYS", "math.pi", "math.huge", "_VERSION", "type(redis.call)"])
                .to_owned(),
            _ => format!("ipairs({})", self.list(depth)),
        }
    }

    fn protected_call(&mut self, depth: usize) -> String {
        match self.dice.below(8) {
            0 => format!("pcall({})", self.list(depth)),
            1..4 => format!("pcall(function() return {} end)", self.without_rest(|w| w.some(depth))),
            4 => format!("xpcall({}, function(m) return m end)", self.function(depth + 1)),
            5 => format!("pcall(error,{})", self.list(depth)),
            6 => format!("assert({})", self.list(depth)),
            _ => format!("error({}{})", self.expression(depth + 1), self.one(&["", "", ",0", ",1", ",2", ",3"])),
        }
    }

    fn string_call(&mut self, depth: usize) -> String {
        match self.dice.below(8) {
            0..4 => {
                let method =
                    self.one(&["len", "upper", "sub", "sub", "byte", "find", "reverse", "lower", "match", "gsub"]);
                format!("({}):{method}({})", self.text(), self.list(depth))
            }
            4 => format!("string.rep({},{})", self.expression(depth + 1), self.one(&["-1", "0", "1", "2", "3", "4"])),
            5 => format!("string.char({})", self.one(&["65", "0,255", "256", "-1", "97,98", "'65'", "1.5", ""])),
            6 => format!("({}):byte({})", self.text(), self.one(&["1,-1", "2", "-1", "0", "9", "-9,9"])),
            _ => format!("({}):sub({})", self.text(), self.one(&["1,-1", "2", "-2", "0", "2,3", "-9,9", "3,1"])),
        }
    }

    fn formatted(&mut self, depth: usize) -> String {
        const DIRECTIVES: &[&str] = &[
            "%s", "%s", "%d", "%5.2f|%s", "%q", "%x", "%g", "%c", "%-5s|", "%i %u", "%e", "%.3s", "%%", "%5d", "%05d",
            "%+d", "%o", "%X", "%#x", "%G", "%.20g", "%.0f", "%.14g", "% d", "%E", "%.3d", "%10.4s|", "%-10d|", "%#o",
            "%5c|", "%.17g", "%f", "%y", "%", "%123d", "%.123f", "%-+ #0d", "%l", "%a",
        ];
        let count = 1 + self.dice.below(2);
        let directives = self.joined(count, " ", |w| w.one(DIRECTIVES).to_owned());
        let values = if self.chance(50) { self.some(depth) } else { format!("{},{}", self.number(), self.text()) };
        format!("string.format('{directives}',{values})")
    }

    fn pattern(&mut self) -> &'static str {
        self.one(&[
            "'.'",
            "'%a+'",
            "'(%w+)=(%w*)'",
            "'^a'",
            "'a$'",
            "'()'",
            "'(.)(.)'",
            "'%s*'",
            "'[a-c]'",
            "'[^%d]+'",
            "'%d*'",
            "'.-b'",
            "'(a*)'",
            "''",
            "'%b()'",
            "'%f[%w]%w+'",
            "'%1'",
            "'(.)%1'",
            "'['",
            "'%'",
            "'(a'",
            "'a)'",
            "'[%]x]'",
            "'[a-]'",
            "'^'",
            "'$'",
            "'%z'",
            "'l+'",
            "'o?'",
            "'[^'",
            "'%b'",
            "'%f'",
            "'(()a)'",
            "'x*'",
            "'[%a_][%w_]*'",
            "'\\0'",
            "'%.'",
            "'%g'",
        ])
    }

    fn matched(&mut self, depth: usize) -> String {
        let (text, pattern) = (self.text(), self.pattern());
        match self.dice.below(5) {
            0 => {
                let replacement = match self.dice.below(3) {
                    0 => self.function(depth + 1),
                    1 => self.expression(depth + 1),
                    _ => self
                        .one(&["'%0%0'", "'%1'", "'<%2>'", "'%'", "'%9'", "''", "'%%'", "{a='A',l=1,k=false}"])
                        .to_owned(),
                };
                format!("({text}):gsub({pattern},{replacement}{})", self.one(&["", "", ",1", ",0", ",-1"]))
            }
            1 => format!("({text}):find({pattern}{})", self.one(&["", ",2", ",-1", ",1,true", ",9", ",-9"])),
            2 => format!("({text}):match({pattern}{})", self.one(&["", ",2", ",-1", ",9"])),
            3 => format!("string.gmatch({text},{pattern})()"),
            _ => format!("string.find({},{pattern})", self.expression(depth + 1)),
        }
    }

    fn table_call(&mut self, depth: usize) -> String {
        match self.dice.below(8) {
            0 => format!("table.concat({},{})", self.table(depth), self.text()),
            1 => format!(
                "table.concat({}{})",
                self.name(),
                self.one(&["", ",'-'", ",',',2", ",'',1,2", ",'',0,1", ",5"])
            ),
            2 => format!("table.getn({})", self.table(depth)),
            3 => format!("table.maxn({})", self.table(depth)),
            4 => format!("table.remove({}{})", self.name(), self.one(&["", ",1", ",2", ",0", ",-1", ",5"])),
            5 => format!("table.foreach({},{})", self.table(depth), self.function(depth + 1)),
            6 => format!("table.foreachi({},{})", self.table(depth), self.function(depth + 1)),
            _ => format!("table.{}({})", self.one(&["sort", "concat", "getn", "maxn", "setn"]), self.list(depth)),
        }
    }

    fn math_call(&mut self, depth: usize) -> String {
        if self.chance(35) {
            let function = self.one(&[
                "band", "bor", "bxor", "bnot", "lshift", "rshift", "arshift", "rol", "ror", "bswap", "tobit", "tohex",
            ]);
            let values =
                if self.chance(60) { format!("{},{}", self.number(), self.number()) } else { self.list(depth) };
            return format!("bit.{function}({values})");
        }
        let function = self.one(&[
            "floor", "ceil", "abs", "max", "min", "sqrt", "fmod", "modf", "frexp", "ldexp", "exp", "log", "log10",
            "pow", "sin", "cos", "tan", "atan", "atan2", "asin", "acos", "deg", "rad", "sinh", "cosh", "tanh", "mod",
        ]);
        let values = if self.chance(60) { format!("{},{}", self.number(), self.number()) } else { self.list(depth) };
        format!("math.{function}({values})")
    }

    fn coroutine_call(&mut self, depth: usize) -> String {
        let values = self.list(depth);
        match self.dice.below(6) {
            0 => format!(
                "coroutine.wrap(function(...) coroutine.yield({}) return ... end)({values})",
                self.without_rest(|w| w.expression(depth + 1))
            ),
            1 => format!("coroutine.resume(coroutine.create({}),{})", self.function(depth + 1), self.some(depth)),
            2 => format!("coroutine.wrap({})({values})", self.function(depth + 1)),
            3 => format!("coroutine.status(coroutine.create({}))", self.function(depth + 1)),
            4 => {
                format!("coroutine.{}({values})", self.one(&["resume", "wrap", "status", "create", "running", "yield"]))
            }
            _ => format!("coroutine.resume(coroutine.create(coroutine.yield),{})", self.some(depth)),
        }
    }

    /// Encoders and decoders: there and back again, or decoding of arbitrary text.
    fn encoded(&mut self, depth: usize) -> String {
        const FORMATS: &[&str] = &[
            "'bBhH'", "'>i4<I2'", "'lL'", "'s'", "'c0'", "'!4bi'", "'fd'", "'i3'", "'x>h'", "'c3'", "'I8'", "'i33'",
            "'q'", "'Bc0'", "' <d '", "'>!8bl'",
        ];
        const JSON: &[&str] = &[
            "'{\"a\":1,\"b\":[1,2,{}],\"c\":null}'",
            "'[1,2'",
            "'{\"a\":}'",
            "'[]'",
            "'{}'",
            "'1e5'",
            "'-0'",
            "'\"\\\\u00e9\\\\n\"'",
            "'[1,]'",
            "'nul'",
            "''",
            "'[0x10]'",
            "'[nan]'",
            "'{\"x\":{\"y\":{\"z\":[true,false]}}}'",
            "'[1.5,-2,1e400]'",
            "'{\"1\":1,\"2\":2}'",
            "'\"\\\\ud83d\\\\ude00\"'",
            "'[\"\\1\"]'",
            "'{1:2}'",
            "'[[[[[]]]]]'",
            "' [ 1 , 2 ] x'",
        ];
        const PACKED: &[&str] = &[
            "'\\147\\1\\2\\3'",
            "'\\129\\161a\\1'",
            "'\\193'",
            "'\\220\\0'",
            "'\\203\\63'",
            "''",
            "'\\192\\194\\195'",
            "'\\255'",
            "'\\146\\1'",
            "'\\211\\255\\255\\255\\255\\255\\255\\255\\255'",
            "'\\202\\63\\128\\0\\0'",
            "'\\130\\1\\2\\3\\4'",
        ];
        match self.dice.below(14) {
            0 | 1 => format!("cjson.encode({})", self.expression(depth + 1)),
            2 | 3 => format!("cjson.encode({})", self.plain_table(depth)),
            4 => format!("cjson.decode(cjson.encode({}))", self.plain_table(depth)),
            5 => format!("cjson.decode({})", self.one(JSON)),
            6 => format!("cmsgpack.unpack(cmsgpack.pack({}))", self.some(depth)),
            7 | 8 => format!("cmsgpack.pack({})", self.plain_table(depth)),
            9 => format!("cmsgpack.{}({})", self.one(&["unpack", "unpack", "pack"]), self.expression(depth + 1)),
            10 => format!(
                "cmsgpack.{}({}{})",
                self.one(&["unpack", "unpack_one", "unpack_limit"]),
                self.one(PACKED),
                self.one(&["", ",1", ",0", ",1,1", ",2,0", ",9"])
            ),
            11 => {
                let format = self.one(FORMATS);
                format!(
                    "struct.unpack({format},struct.pack({format},{},{}))",
                    self.number(),
                    self.one(&["1", "'abc'", "2,3", "-1"])
                )
            }
            12 => format!("struct.pack({},{})", self.one(FORMATS), self.list(depth)),
            _ => format!(
                "struct.{}({}{})",
                self.one(&["unpack", "size"]),
                self.one(FORMATS),
                self.one(&["", ",'abcdefgh'", ",'\\1\\2\\3\\4'", ",'abc',2", ",'',0"])
            ),
        }
    }

    // Statements.

    fn block(&mut self, depth: usize, statements: usize) -> String {
        let outer = self.names.len();
        let mut text = String::new();
        for _ in 0..statements {
            let statement = self.statement(depth);
            // A bracket at the start of a line would be read as a call of the expression before it.
            if statement.starts_with('(') && !text.is_empty() {
                text = format!("{}; ", text.trim_end_matches([' ', '\n', ';']));
            }
            text += &statement;
            text += self.one(&["\n", "\n", " ", "; "]);
        }
        self.names.truncate(outer);
        text
    }

    fn statement(&mut self, depth: usize) -> String {
        let kinds = if depth > MAX_DEPTH { 60 } else { 112 };
        match self.dice.below(kinds) {
            0..20 => self.local(depth),
            20..33 => self.assignment(depth),
            33..42 => self.call(depth),
            42..47 => format!("{}.{} = {}", self.name(), self.field(), self.expression(depth)),
            47..51 => {
                let table = self.name();
                self.growth(table)
            }
            51..56 => self.local_function(depth),
            // A position far below 0 would keep Redis busy for minutes.
            56..60 => format!(
                "table.insert({},{}({}))",
                self.name(),
                self.one(&["", "", "1,", "2,", "0,", "9,", "-3,", "'2',", "2.5,", "2^32+1,"]),
                self.expression(depth + 1)
            ),
            60..67 => self.condition(depth),
            67..72 => self.numeric_loop(depth),
            72..80 => self.generic_loop(depth),
            80..82 if self.loops > 0 => format!("if {} then break end", self.expression(depth + 1)),
            80..83 => self.while_loop(depth),
            83..85 => {
                let body = self.block(depth + 1, 2);
                format!("do {body} end")
            }
            85..88 => format!("if {} then return {} end", self.expression(depth + 1), self.list(depth)),
            88..91 => format!("setmetatable({},{})", self.name(), self.metatable(depth)),
            91..95 => self.removal(),
            95..98 => self.sorting(depth),
            98..101 => self.recursion(depth),
            101..105 => self.coroutine(depth),
            105..107 => self.closures(depth),
            107..109 => self.outer_names(depth),
            _ => self.caught(depth),
        }
    }

    fn local(&mut self, depth: usize) -> String {
        let count = *self.dice.pick(&[1, 1, 1, 2, 3]);
        let names: Vec<_> = (0..count).map(|_| self.one(&["a", "b", "c", "t", "v", "w"])).collect();
        let values = self.list(depth);
        self.names.extend(&names);
        format!("local {}{}{values}", names.join(","), if values.is_empty() { "" } else { " = " })
    }

    fn assignment(&mut self, depth: usize) -> String {
        let count = *self.dice.pick(&[1, 1, 1, 2, 3]);
        let places = self.joined(count, ",", |w| match w.dice.below(3) {
            0 => w.name().to_owned(),
            1 => format!("{}.{}{}", w.name(), w.one(&["", "", "a.", "x."]), w.field()),
            _ => format!("{}[{}]", w.name(), w.expression(depth + 1)),
        });
        format!("{places} = {}", self.some(depth))
    }

    fn local_function(&mut self, depth: usize) -> String {
        let name = self.one(&["f", "g", "h"]);
        self.names.push(name);
        format!("local function {name}{}", self.function_body(depth + 1))
    }

    fn condition(&mut self, depth: usize) -> String {
        let (test, statements) = (self.expression(depth + 1), self.dice.below(3));
        let (before, body) = (self.gap(), self.block(depth + 1, statements));
        let otherwise = match self.dice.below(3) {
            0 => String::new(),
            1 => format!("else {}", self.block(depth + 1, 1)),
            _ => format!("elseif {} then {}", self.expression(depth + 1), self.block(depth + 1, 1)),
        };
        format!("if {test} then{before}{body}{otherwise}{}end", self.gap())
    }

    /// The body of a loop that declares names.
    fn rounds(&mut self, depth: usize, names: &[&'static str]) -> String {
        let outer = self.names.len();
        self.names.extend(names);
        self.loops += 1;
        let statements = self.dice.below(3);
        let body = self.block(depth + 1, statements);
        self.loops -= 1;
        self.names.truncate(outer);
        body
    }

    fn numeric_loop(&mut self, depth: usize) -> String {
        let name = self.one(&["i", "j"]);
        if self.chance(15) {
            // Bounds and steps that round, that are not numbers, or that would let the loop run for ever.
            let from =
                self.one(&["0.1", "-0", "0", "1", "3", "2^53", "-2^53", "1/0", "-1/0", "0/0", "1e308", "'0x1p-3'"]);
            let to = self.one(&["1", "0", "-3", "2.5", "2^53+4", "1/0", "-1/0", "0/0", "'7'"]);
            let step = self.one(&["1", "0", "-0", "-1", "0.3", "'2'", "1e-300", "-1/0", "1/0", "0/0", "2^52"]);
            let body = self.rounds(depth, &[name]);
            return format!("for {name} = {from},{to},{step} do{}if spent() then break end {body}end", self.gap());
        }
        let from = self.one(&["1", "1", "1", "0", "-2", "3", "0.5", "'1'", "-0", "nil", "0/0", "{}"]);
        let (to, step) =
            (self.one(&["3", "5", "8", "2", "'3'", "2.5"]), self.one(&["", ",2", ",-1", ",1", ",0.5", ",'x'"]));
        format!("for {name} = {from},{to}{step} do{}{}end", self.gap(), self.rounds(depth, &[name]))
    }

    fn generic_loop(&mut self, depth: usize) -> String {
        let source = match self.dice.below(12) {
            0..3 => format!("pairs({})", self.name()),
            3 | 4 => format!("ipairs({})", self.name()),
            5 => format!("next,{}", self.name()),
            6 => format!("string.gmatch({},{})", self.text(), self.pattern()),
            7 => self.some(depth),
            _ => format!("pairs({})", self.table(depth)),
        };
        let body = self.rounds(depth, &["k", "v"]);
        format!("for k,v in {source} do{}if spent() then break end {body}end", self.gap())
    }

    /// A loop that counts in a name that is assigned nowhere else.
    fn while_loop(&mut self, depth: usize) -> String {
        let body = self.rounds(depth, &[]);
        if self.chance(50) {
            return format!("local round = 0 while round < 3 do round = round + 1 {body} end");
        }
        format!(
            "local round = 0 repeat round = round + 1 local z = round {body} until z >= 3 or {}",
            self.expression(depth + 1)
        )
    }

    /// Visits a table while its elements are removed or changed.
    fn removal(&mut self) -> String {
        let (table, seen) = (self.name(), self.one(&["", "a.seen = k ", "b = k "]));
        let change = self.one(&[
            "TABLE[k] = nil",
            "if k ~= 1 then TABLE[k] = nil end",
            "TABLE[k] = v and 0",
            "table.remove(TABLE)",
            "TABLE[#TABLE] = nil",
            "if type(k) == 'string' then TABLE[k] = nil end",
            "TABLE[k] = nil collectgarbage()",
        ]);
        let change = change.replace("TABLE", table);
        let iterator = self.one(&["pairs", "pairs", "ipairs", "next, "]);
        format!("for k, v in {iterator}({table}) do if spent() then break end {seen}{change} end")
    }

    fn sorting(&mut self, depth: usize) -> String {
        const COMPARATORS: &[&str] = &[
            "",
            "",
            ", function(x, y) return x > y end",
            ", function(x, y) return tostring(x) < tostring(y) end",
            ", function(x, y) return x <= y end",
            ", function(x, y) return true end",
            ", function(x, y) return nil end",
            ", function(x, y) return type(x) < type(y) end",
            ", 5",
            ", nil",
            ", function() error('never') end",
        ];
        let count = self.dice.below(12);
        let table = match self.dice.below(4) {
            0 => self.name().to_owned(),
            1 => self.table(depth),
            2 => format!("{{{}}}", self.joined(count, ",", |w| w.dice.below(30).to_string())),
            _ => format!("{{{}}}", self.joined(count, ",", Self::text)),
        };
        self.names.push("s");
        format!("local s = {table} table.sort(s{})", self.one(COMPARATORS))
    }

    /// A function that calls itself a few times, in a tail call or not, with growing varargs.
    fn recursion(&mut self, depth: usize) -> String {
        self.names.push("r");
        let end = self.one(&["...", "n", "select('#', ...)", "{...}", "error('deep')", "error({n})", "debug", "nil"]);
        let again = self.one(&[
            "return r(n - 1, ...)",
            "return r(n - 1, n, ...)",
            "return (r(n - 1, ...))",
            "local x, y = r(n - 1, ..., n) return y, x",
            "return pcall(r, n - 1, ...)",
            "return n + (r(n - 1, ...) or 0)",
            "return {r(n - 1, ...)}",
        ]);
        let start = self.one(&["1", "3", "7", "20"]);
        let values = self.some(depth);
        format!(
            "local r r = function(n, ...){}if type(n) ~= 'number' or n <= 0 or spent() then return {end} \
             end{}{again} end\n\
             r = {{r({start}, {values})}}",
            self.gap(),
            self.gap(),
        )
    }

    fn coroutine(&mut self, depth: usize) -> String {
        self.names.extend(["co", "o"]);
        let (first, second) = self.without_rest(|w| (w.some(depth), w.some(depth)));
        let body = self.one(&[
            "local x, y = coroutine.yield(FIRST) local z = coroutine.yield(x, y, SECOND) return z",
            "for i = 1, 3 do coroutine.yield(i, ...) end error('over')",
            "coroutine.yield(pcall(function() coroutine.yield(1) end)) error({1})",
            "return coroutine.wrap(function(...) coroutine.yield(...) end)(...)",
            "coroutine.yield(coroutine.status(coroutine.running())) return FIRST",
            "local t = setmetatable({}, {__index = function(t, k) return k end}) coroutine.yield(t.x) \
             return t[1] .. nil",
            "for k, v in pairs{FIRST} do coroutine.yield(k, v) end",
        ]);
        let body = body.replace("FIRST", &first).replace("SECOND", &second);
        format!(
            "local co = coroutine.create(function(...) {body} end)\n\
             local o = {{}} for i = 1, {} do o[i] = {{coroutine.resume(co, i, {})}} \
             o['s' .. i] = coroutine.status(co) end",
            2 + self.dice.below(3),
            self.some(depth),
        )
    }

    /// Functions that share a local, and others with one each.
    fn closures(&mut self, depth: usize) -> String {
        self.names.push("fs");
        let value = self.without_rest(|w| w.expression(depth + 1));
        format!(
            "local fs = {{}} do local n = 0 for i = 1, 3 do local own = {value} \
             fs[i] = function(...) n = n + 1 i = i + 1 own = {{own, i}} return n, i, own, ... end end end\n\
             fs = {{fs[1](1), fs[1](), fs[{}](nil, 2), fs[3]()}}",
            self.one(&["1", "2", "3", "4"]),
        )
    }

    /// Names from outside the program: globals, environments, methods of strings.
    fn outer_names(&mut self, depth: usize) -> String {
        match self.dice.below(7) {
            0 => format!("undefined = {}", self.expression(depth + 1)),
            1 => "undefined()".to_owned(),
            2 => format!("{} = setfenv(function() return x end, {{x={}}})()", self.name(), self.expression(depth + 1)),
            3 => format!(
                "{} = loadstring({})",
                self.name(),
                self.one(&["'return 1, ...'", "'x ='", "'return x.y', '=name'", "'\\n\\n)'"])
            ),
            4 => "string.len = 1".to_owned(),
            5 => format!("{} = (loadstring('local a, b = ... return b, a'))({})", self.name(), self.list(depth)),
            _ => format!("{} = {{pcall(rawset, {}, 'x', 1)}}", self.name(), self.one(&["string", "_G", "{}", "redis"])),
        }
    }

    /// Statements whose error becomes a value.
    fn caught(&mut self, depth: usize) -> String {
        let outer = (self.loops, self.calls);
        self.loops = 0;
        let statements = 1 + self.dice.below(2);
        let body = self.without_rest(|w| w.block(depth + 1, statements));
        (self.loops, self.calls) = outer;
        self.names.push("e");
        self.calls = true;
        format!("local e = {{pcall(function()\n{body} end)}}")
    }
}

#[test]
fn tokens_reproduce_the_text() {
    for seed in 0..20 {
        let program = program(&mut Dice(seed));
        assert_eq!(tokens(&program).concat(), program);
    }
}
