//! The notation that declares a command's arguments, and the tree it is parsed into.
//!
//! `key value [NX | XX] [GET] [EX seconds | PX milliseconds | KEEPTTL]` has the form that Redis' manual uses:
//!
//! - lower case is a value, upper case a literal word; a word that precedes values belongs to them;
//! - `[ ]` is optional, `< >` is a choice, `( )` groups, `|` separates choices;
//! - `...` repeats the item before it; after `[WORD value]` the word is repeated, too;
//! - `:name` directly after a bracket or a literal word names that item; without it, the item takes the name of its
//!   first part.
//!
//! A value's type follows from its name (`seconds` is an integer), or is written after it (`increment:double`). COMMAND
//! DOCS returns this tree, redis-cli derives its hints from it, and the tests generate random calls from it.

/// One argument, or a group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Its name.
    pub name: String,
    /// The placeholder of a value in the command's full form: the name it has without `:name`.
    pub shown: String,
    /// Its type.
    pub kind: Kind,
    /// The literal word that precedes it or, for a pure token, is the argument.
    pub token: Option<String>,
    /// May be omitted.
    pub optional: bool,
    /// May be repeated.
    pub multiple: bool,
    /// Repeated together with its token.
    pub multiple_token: bool,
}

/// The type of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any bytes.
    String,
    /// A 64-bit integer.
    Integer,
    /// A double.
    Double,
    /// A key.
    Key,
    /// A glob.
    Pattern,
    /// A point in time.
    UnixTime,
    /// A literal word.
    PureToken,
    /// One of these.
    OneOf(Vec<Arg>),
    /// All of these, in order.
    Block(Vec<Arg>),
}

impl Kind {
    /// Returns the type's name in COMMAND DOCS.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Double => "double",
            Kind::Key => "key",
            Kind::Pattern => "pattern",
            Kind::UnixTime => "unix-time",
            Kind::PureToken => "pure-token",
            Kind::OneOf(_) => "oneof",
            Kind::Block(_) => "block",
        }
    }
}

/// Parses a declaration. The error describes what is wrong with it.
pub fn parse(syntax: &str) -> Result<Vec<Arg>, String> {
    let mut spaced = String::with_capacity(syntax.len() * 2);
    for c in syntax.chars() {
        match c {
            '[' | ']' | '<' | '>' | '(' | ')' | '|' => spaced.extend([' ', c, ' ']),
            c => spaced.push(c),
        }
    }
    let spaced = spaced.replace("...", " ... ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, at: 0 };
    let args = parser.sequence()?;
    if parser.at < words.len() {
        return Err(format!("`{}` closes nothing", words[parser.at]));
    }
    Ok(args)
}

/// Returns a declaration for people, without types and the names of groups, which only clients need.
pub fn for_people(syntax: &str) -> String {
    let mut shown = String::with_capacity(syntax.len());
    let mut word_is_typed = false;
    let mut rest = syntax;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c == ':' {
            let after = rest.trim_start_matches(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            let declared = &rest[..rest.len() - after.len()];
            // `ip:port` is a value of its own.
            if word_is_typed || shown.ends_with([']', '>', ')']) || kind("", declared) != Kind::String {
                rest = after;
                continue;
            }
        }
        let begins_word = shown.is_empty() || shown.ends_with([' ', '[', '<', '(', '|']);
        word_is_typed = !c.is_ascii_lowercase() && (word_is_typed || begins_word);
        shown.push(c);
    }
    shown
}

struct Parser<'a> {
    words: &'a [&'a str],
    at: usize,
}

impl Parser<'_> {
    fn sequence(&mut self) -> Result<Vec<Arg>, String> {
        let mut args: Vec<Arg> = Vec::new();
        while let Some(word) = self.words.get(self.at) {
            let arg = match *word {
                "]" | ">" | ")" | "|" => break,
                "[" => self.group("]")?.optional(),
                "<" => self.group(">")?,
                "(" => self.group(")")?,
                "..." => {
                    self.at += 1;
                    let last = args.last_mut().ok_or("`...` repeats nothing")?;
                    last.multiple = true;
                    let is_name = |at: usize| self.words.get(at).is_some_and(|word| word.starts_with(':'));
                    let before = self.at.wrapping_sub(if is_name(self.at.wrapping_sub(2)) { 3 } else { 2 });
                    last.multiple_token = last.token.is_some() && self.words.get(before) == Some(&"]");
                    continue;
                }
                word => {
                    self.at += 1;
                    value(word)
                }
            };
            // A word belongs to the value that follows it.
            match args.last_mut() {
                Some(last) if last.kind == Kind::PureToken && !last.optional && takes_token(&arg) => {
                    let token = last.token.take();
                    *last = Arg { token, ..arg };
                }
                _ => args.push(arg),
            }
        }
        Ok(args)
    }

    fn group(&mut self, close: &str) -> Result<Arg, String> {
        self.at += 1;
        let mut choices = vec![self.sequence()?];
        while self.words.get(self.at) == Some(&"|") {
            self.at += 1;
            choices.push(self.sequence()?);
        }
        if self.words.get(self.at) != Some(&close) {
            return Err(format!("`{close}` is missing"));
        }
        self.at += 1;
        let mut args = choices.into_iter().map(block).collect::<Result<Vec<_>, _>>()?;
        let group = if args.len() == 1 { args.remove(0) } else { Arg::new(args[0].name.clone(), Kind::OneOf(args)) };
        let Some(name) = self.words.get(self.at).and_then(|word| word.strip_prefix(':')) else { return Ok(group) };
        self.at += 1;
        Ok(Arg { name: name.to_owned(), ..group })
    }
}

impl Arg {
    fn new(name: String, kind: Kind) -> Arg {
        let shown = name.clone();
        Arg { name, shown, kind, token: None, optional: false, multiple: false, multiple_token: false }
    }

    fn optional(self) -> Arg {
        Arg { optional: true, ..self }
    }
}

/// Several arguments as one; a leading word of the group becomes its token.
fn block(mut args: Vec<Arg>) -> Result<Arg, String> {
    match args.len() {
        0 => Err("an empty group".to_owned()),
        1 => Ok(args.remove(0)),
        _ => {
            // `LIMIT offset count`: the word was joined to the first value, but belongs to the group.
            let token = if args[0].kind == Kind::PureToken {
                args.remove(0).token
            } else if !args[0].optional && args[1..].iter().all(|arg| arg.token.is_none()) {
                args[0].token.take()
            } else {
                None
            };
            let name = token.as_deref().map_or(args[0].name.clone(), str::to_ascii_lowercase);
            Ok(Arg { token, ..Arg::new(name, Kind::Block(args)) })
        }
    }
}

fn takes_token(arg: &Arg) -> bool {
    arg.token.is_none() && !arg.optional
}

fn value(word: &str) -> Arg {
    // `ip:port` is a value of its own.
    let (text, declared) = word.split_once(':').unwrap_or((word, ""));
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Arg::new(text.to_ascii_lowercase(), kind(text, declared));
    }
    let name = if declared.is_empty() { text.to_ascii_lowercase() } else { declared.to_owned() };
    Arg { token: Some(text.to_owned()), ..Arg::new(name, Kind::PureToken) }
}

fn kind(name: &str, declared: &str) -> Kind {
    match if declared.is_empty() { name } else { declared } {
        "key" | "source" | "destination" | "newkey" => Kind::Key,
        "pattern" => Kind::Pattern,
        "unix-time-seconds" | "unix-time-milliseconds" | "unix-time" => Kind::UnixTime,
        "double" | "longitude" | "latitude" | "radius" | "width" | "height" | "score" | "timeout" => Kind::Double,
        "integer" | "seconds" | "milliseconds" | "count" | "cursor" | "offset" | "start" | "stop" | "end" | "index"
        | "numkeys" | "numfields" | "db" | "bit" | "len" | "rank" | "maxlen" | "index1" | "index2" | "entries-read"
        | "min-idle-time" | "limit" | "client-id" | "protover" | "freq" | "ms" => Kind::Integer,
        _ => Kind::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(args: &[Arg]) -> String {
        let one = |arg: &Arg| {
            let body = match &arg.kind {
                Kind::OneOf(args) => {
                    format!("<{}>", args.iter().map(|a| shape(std::slice::from_ref(a))).collect::<Vec<_>>().join("|"))
                }
                Kind::Block(args) => format!("({})", shape(args)),
                Kind::PureToken => "!".to_owned(),
                kind => format!("{}:{}", arg.name, kind.name()),
            };
            let token = arg.token.as_deref().unwrap_or("");
            let (open, close) = if arg.optional { ("[", "]") } else { ("", "") };
            let dots = match (arg.multiple, arg.multiple_token) {
                (false, _) => "",
                (true, false) => "...",
                (true, true) => "*...",
            };
            format!("{open}{token}{body}{close}{dots}")
        };
        args.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_unnamed_group_takes_the_name_of_its_first_part() {
        let names = |syntax: &str| -> Vec<(String, String)> {
            parse(syntax).expect("a syntax").into_iter().map(|arg| (arg.name, arg.shown)).collect()
        };
        let named = |name: &str, shown: &str| (name.to_owned(), shown.to_owned());
        assert_eq!(names("[NX | XX] (key value)..."), [named("nx", "nx"), named("key", "key")]);
        assert_eq!(names("[NX | XX]:condition (key value):data..."), [named("condition", "nx"), named("data", "key")]);
        assert_eq!(names("[GET pattern]:by-get CH:change"), [named("by-get", "pattern"), named("change", "change")]);
    }

    #[test]
    fn help_texts_omit_types_and_the_names_of_groups() {
        for (syntax, shown) in [
            ("key [NX | XX]:condition [CH:change] (score member):data...", "key [NX | XX] [CH] (score member)..."),
            ("<ip:port | ID id> increment:double", "<ip:port | ID id> increment"),
            ("<*:auto-id | id>:id-selector [COUNT count]", "<* | id> [COUNT count]"),
        ] {
            assert_eq!(for_people(syntax), shown);
        }
    }

    #[test]
    fn declarations_become_trees() {
        let cases = [
            ("", ""),
            ("key", "key:key"),
            ("key...", "key:key..."),
            ("key [NX | XX] [GET] [EX seconds | KEEPTTL]", "key:key [<NX!|XX!>] [GET!] [<EXseconds:integer|KEEPTTL!>]"),
            ("(key value)...", "(key:key value:string)..."),
            ("[MATCH pattern] [COUNT count]", "[MATCHpattern:pattern] [COUNTcount:integer]"),
            ("[GET pattern]... [AUTH word...]", "[GETpattern:pattern]*... [AUTHword:string]..."),
            ("[LIMIT offset count]", "[LIMIT(offset:integer count:integer)]"),
            ("([OVERFLOW <WRAP | SAT>] <SET a | GET b>)", "([OVERFLOW<WRAP!|SAT!>] <SETa:string|GETb:string>)"),
            ("(STREAMS key... id...)", "STREAMS(key:key... id:string...)"),
            ("<LEFT | RIGHT> increment:double", "<LEFT!|RIGHT!> increment:double"),
            ("[NX | XX]:condition [CH:change] [GET pattern]:by...", "[<NX!|XX!>] [CH!] [GETby:pattern]*..."),
        ];
        for (syntax, want) in cases {
            assert_eq!(parse(syntax).map(|args| shape(&args)), Ok(want.to_owned()), "{syntax}");
        }
        for broken in ["[", "a ]", "<>", "...", "(a | ", "[]"] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }
}
