//! Turns tokens into trees: recursive descent, with precedence climbing for operators.

use super::lexer::{Lexer, Token};
use super::{Block, Class, Expr, ExprKind, Function, Name, Statement, StatementKind, Suffix, SyntaxError};
use crate::lint::limits::SYNTAX_MAX_DEPTH;

/// Reads a whole program as a function whose only parameter is `...`.
pub(crate) fn parse(text: &[u8]) -> Result<Function<'_>, SyntaxError> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        token: Token::End,
        line: 1,
        ahead: None,
        ended_line: 1,
        depth: 0,
        functions: 1,
        loops: 0,
        is_vararg: true,
    };
    parser.advance()?;
    let body = parser.block()?;
    match parser.token {
        Token::End => Ok(Function { number: 0, parameters: Vec::new(), body }),
        _ => Err(parser.error("unexpected symbol")),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token, and the line on which it begins.
    token: Token<'a>,
    line: u32,
    /// The token after it, if it has already been read.
    ahead: Option<(Token<'a>, u32)>,
    /// The lexer's line when `token` became the next one.
    ended_line: u32,
    depth: usize,
    /// Number of functions that have begun.
    functions: usize,
    /// Open loops of this function that `break` can leave.
    loops: usize,
    /// Whether this function has `...`.
    is_vararg: bool,
}

/// The end of a name or a bracket with all its suffixes. It decides which kind of statement it can begin.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    /// A name or an index, which can be assigned to.
    Place,
    Call,
    Bracket,
}

/// Binary operators: their binding strength to the left and to the right, and their class.
const OPERATORS: [(&str, u8, u8, Class); 15] = [
    ("or", 1, 1, Class::Or),
    ("and", 2, 2, Class::And),
    ("<", 3, 3, Class::Compare),
    (">", 3, 3, Class::Compare),
    ("<=", 3, 3, Class::Compare),
    (">=", 3, 3, Class::Compare),
    ("~=", 3, 3, Class::Compare),
    ("==", 3, 3, Class::Compare),
    ("..", 5, 4, Class::Concat),
    ("+", 6, 6, Class::Arithmetic),
    ("-", 6, 6, Class::Arithmetic),
    ("*", 7, 7, Class::Arithmetic),
    ("/", 7, 7, Class::Arithmetic),
    ("%", 7, 7, Class::Arithmetic),
    ("^", 10, 9, Class::Arithmetic),
];

/// Binding strength of `-`, `not` and `#`.
const UNARY: u8 = 8;

type Parsed<T> = Result<T, SyntaxError>;

impl<'a> Parser<'a> {
    /// An error at the lexer's line: as in Lua, the line on which the next token ends.
    fn error(&self, fault: &'static str) -> SyntaxError {
        SyntaxError { line: self.lexer.line(), fault }
    }

    fn read(&mut self) -> Parsed<(Token<'a>, u32)> {
        self.lexer.skip_blanks()?;
        let line = self.lexer.line();
        Ok((self.lexer.token()?, line))
    }

    /// Moves on by one token.
    fn advance(&mut self) -> Parsed<()> {
        self.ended_line = self.lexer.line();
        (self.token, self.line) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => self.read()?,
        };
        Ok(())
    }

    /// Whether `symbol` is the token after the next one. No token must have been read ahead.
    fn is_followed_by(&mut self, symbol: &str) -> Parsed<bool> {
        debug_assert!(self.ahead.is_none());
        let ahead = self.read()?;
        Ok(matches!(self.ahead.insert(ahead).0, Token::Symbol(next) if next == symbol))
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.token, Token::Symbol(next) if next == symbol)
    }

    fn accept(&mut self, symbol: &str) -> Parsed<bool> {
        let is = self.is(symbol);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.accept(symbol)? { Ok(()) } else { Err(self.error("another symbol was expected")) }
    }

    fn name(&mut self) -> Parsed<Name<'a>> {
        let Token::Name(name) = self.token else { return Err(self.error("a name was expected")) };
        self.advance()?;
        Ok(name)
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == SYNTAX_MAX_DEPTH {
            return Err(self.error("too many levels"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Items separated by commas.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.accept(",")? {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn expressions(&mut self) -> Parsed<Vec<Expr<'a>>> {
        self.list(Self::expression)
    }

    fn ends_block(&self) -> bool {
        matches!(self.token, Token::End | Token::Symbol("end" | "else" | "elseif" | "until"))
    }

    fn block(&mut self) -> Parsed<Block<'a>> {
        self.nested(|parser| {
            let mut statements = Vec::new();
            let mut is_last = false;
            while !is_last && !parser.ends_block() {
                let line = parser.line;
                let kind = parser.statement()?;
                parser.accept(";")?;
                is_last = matches!(kind, StatementKind::Return(_) | StatementKind::Jump);
                statements.push(Statement { line, kind });
            }
            Ok(statements)
        })
    }

    /// A block that `break` can leave.
    fn loop_block(&mut self) -> Parsed<Block<'a>> {
        self.loops += 1;
        let block = self.block()?;
        self.loops -= 1;
        Ok(block)
    }

    /// A block and the `end` after it.
    fn block_to_end(&mut self) -> Parsed<Block<'a>> {
        let block = self.block()?;
        self.expect("end")?;
        Ok(block)
    }

    /// The body of `while` and `for`, with its `do` and `end`.
    fn loop_body(&mut self) -> Parsed<Block<'a>> {
        self.expect("do")?;
        let block = self.loop_block()?;
        self.expect("end")?;
        Ok(block)
    }

    fn statement(&mut self) -> Parsed<StatementKind<'a>> {
        let Token::Symbol(symbol) = self.token else { return self.expression_statement() };
        match symbol {
            "local" | "do" | "while" | "repeat" | "if" | "for" | "function" | "return" | "break" => self.advance()?,
            _ => return self.expression_statement(),
        }
        match symbol {
            "local" => self.local(),
            "do" => Ok(StatementKind::Do(self.block_to_end()?)),
            "while" => {
                let condition = self.expression()?;
                Ok(StatementKind::While { condition, body: self.loop_body()? })
            }
            "repeat" => {
                let body = self.loop_block()?;
                self.expect("until")?;
                Ok(StatementKind::Repeat { body, condition: self.expression()? })
            }
            "if" => self.branches(),
            "for" => self.for_loop(),
            "function" => self.function_statement(),
            "return" => {
                let is_empty = self.ends_block() || self.is(";");
                Ok(StatementKind::Return(if is_empty { Vec::new() } else { self.expressions()? }))
            }
            _ if self.loops == 0 => Err(self.error("no loop to break")),
            _ => Ok(StatementKind::Jump),
        }
    }

    fn local(&mut self) -> Parsed<StatementKind<'a>> {
        if self.accept("function")? {
            let name = self.name()?;
            return Ok(StatementKind::LocalFunction { name, function: self.function(&[])? });
        }
        let names = self.list(Self::name)?;
        let values = if self.accept("=")? { self.expressions()? } else { Vec::new() };
        Ok(StatementKind::Local { names, values })
    }

    fn branches(&mut self) -> Parsed<StatementKind<'a>> {
        let mut arms = Vec::new();
        loop {
            let condition = self.expression()?;
            self.expect("then")?;
            arms.push((condition, self.block()?));
            if !self.accept("elseif")? {
                break;
            }
        }
        let otherwise = if self.accept("else")? { self.block()? } else { Vec::new() };
        self.expect("end")?;
        Ok(StatementKind::If { arms, otherwise })
    }

    fn for_loop(&mut self) -> Parsed<StatementKind<'a>> {
        let name = self.name()?;
        if self.accept("=")? {
            let mut bounds = vec![self.expression()?];
            self.expect(",")?;
            bounds.push(self.expression()?);
            if self.accept(",")? {
                bounds.push(self.expression()?);
            }
            return Ok(StatementKind::CountingFor { name, bounds, body: self.loop_body()? });
        }
        let mut names = vec![name];
        while self.accept(",")? {
            names.push(self.name()?);
        }
        self.expect("in")?;
        Ok(StatementKind::GenericFor { names, values: self.expressions()?, body: self.loop_body()? })
    }

    /// `function a.b:c() end`, as an assignment.
    fn function_statement(&mut self) -> Parsed<StatementKind<'a>> {
        let line = self.line;
        let base = Box::new(Expr { line, kind: ExprKind::Name(self.name()?) });
        let mut fields = Vec::new();
        let mut own: &[Name<'a>] = &[];
        loop {
            let is_method = self.accept(":")?;
            if !is_method && !self.accept(".")? {
                break;
            }
            fields.push(Suffix::Index(self.field()?));
            if is_method {
                own = &[b"self"];
                break;
            }
        }
        let target = if fields.is_empty() { *base } else { Expr { line, kind: ExprKind::Suffixed(base, fields) } };
        let value = Expr { line, kind: ExprKind::Function(self.function(own)?) };
        Ok(StatementKind::Assign { targets: vec![target], values: vec![value] })
    }

    fn expression_statement(&mut self) -> Parsed<StatementKind<'a>> {
        let (first, ending) = self.suffixed()?;
        if ending == Ending::Call {
            return Ok(StatementKind::Call(first));
        }
        let mut targets = vec![self.target(first, ending)?];
        while self.accept(",")? {
            let (next, ending) = self.suffixed()?;
            targets.push(self.target(next, ending)?);
        }
        self.expect("=")?;
        Ok(StatementKind::Assign { targets, values: self.expressions()? })
    }

    fn target(&self, expr: Expr<'a>, ending: Ending) -> Parsed<Expr<'a>> {
        if ending == Ending::Place { Ok(expr) } else { Err(self.error("nothing can be assigned to this")) }
    }

    /// A function from its parameters on. `own` are implicit parameters.
    fn function(&mut self, own: &[Name<'a>]) -> Parsed<Box<Function<'a>>> {
        let number = self.functions;
        self.functions += 1;
        let (loops, is_vararg) = (std::mem::take(&mut self.loops), std::mem::take(&mut self.is_vararg));
        self.expect("(")?;
        let parameters = self.parameters(own)?;
        self.expect(")")?;
        let body = self.block_to_end()?;
        (self.loops, self.is_vararg) = (loops, is_vararg);
        Ok(Box::new(Function { number, parameters, body }))
    }

    /// Names separated by commas, with an optional `...` at the end.
    fn parameters(&mut self, own: &[Name<'a>]) -> Parsed<Vec<Name<'a>>> {
        let mut parameters = own.to_vec();
        let mut goes_on = !self.is(")");
        while goes_on {
            self.is_vararg = self.accept("...")?;
            if !self.is_vararg {
                parameters.push(self.name()?);
            }
            goes_on = !self.is_vararg && self.accept(",")?;
        }
        Ok(parameters)
    }

    fn expression(&mut self) -> Parsed<Expr<'a>> {
        self.operation(0)
    }

    /// An expression whose operators bind more strongly than `limit`.
    fn operation(&mut self, limit: u8) -> Parsed<Expr<'a>> {
        self.nested(|parser| {
            let mut left = parser.operand()?;
            while let Token::Symbol(symbol) = parser.token
                && let Some(&(_, binds, right, class)) = OPERATORS.iter().find(|operator| operator.0 == symbol)
                && binds > limit
            {
                parser.advance()?;
                let operand = parser.operation(right)?;
                left = join(left, class, operand);
            }
            Ok(left)
        })
    }

    fn operand(&mut self) -> Parsed<Expr<'a>> {
        let line = self.line;
        let is_length = self.is("#");
        if !is_length && !self.is("-") && !self.is("not") {
            return self.simple();
        }
        self.advance()?;
        let of = Box::new(self.operation(UNARY)?);
        Ok(Expr { line, kind: if is_length { ExprKind::Length(of) } else { ExprKind::Unary(of) } })
    }

    fn simple(&mut self) -> Parsed<Expr<'a>> {
        let line = self.line;
        let kind = match &self.token {
            Token::Number(digits) => ExprKind::Number(digits),
            Token::Text(text) => ExprKind::Text(text.clone()),
            Token::Symbol("nil") => ExprKind::Nil,
            Token::Symbol("true" | "false") => ExprKind::Boolean,
            Token::Symbol("...") if !self.is_vararg => return Err(self.error("this function has no `...`")),
            Token::Symbol("...") => ExprKind::Rest,
            Token::Symbol("{") => return self.table(),
            Token::Symbol("function") => {
                self.advance()?;
                return Ok(Expr { line, kind: ExprKind::Function(self.function(&[])?) });
            }
            _ => return self.suffixed().map(|(expr, _)| expr),
        };
        self.advance()?;
        Ok(Expr { line, kind })
    }

    /// A name or an expression in brackets, with all its suffixes.
    fn suffixed(&mut self) -> Parsed<(Expr<'a>, Ending)> {
        let line = self.line;
        let (base, mut ending) = self.primary()?;
        let mut suffixes = Vec::new();
        while let Some(suffix) = self.suffix()? {
            ending = if let Suffix::Index(_) = suffix { Ending::Place } else { Ending::Call };
            suffixes.push(suffix);
        }
        if suffixes.is_empty() {
            return Ok((base, ending));
        }
        Ok((Expr { line, kind: ExprKind::Suffixed(Box::new(base), suffixes) }, ending))
    }

    fn primary(&mut self) -> Parsed<(Expr<'a>, Ending)> {
        if self.accept("(")? {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok((inner, Ending::Bracket));
        }
        let Token::Name(name) = self.token else { return Err(self.error("unexpected symbol")) };
        let line = self.line;
        self.advance()?;
        Ok((Expr { line, kind: ExprKind::Name(name) }, Ending::Place))
    }

    fn suffix(&mut self) -> Parsed<Option<Suffix<'a>>> {
        match self.token {
            Token::Symbol("." | "[") => self.index().map(Some),
            Token::Symbol(":" | "(" | "{") | Token::Text(_) => self.call().map(Some),
            _ => Ok(None),
        }
    }

    fn index(&mut self) -> Parsed<Suffix<'a>> {
        let key = if self.accept(".")? { self.field()? } else { self.key_in_brackets()? };
        Ok(Suffix::Index(key))
    }

    fn key_in_brackets(&mut self) -> Parsed<Expr<'a>> {
        self.expect("[")?;
        let key = self.expression()?;
        self.expect("]")?;
        Ok(key)
    }

    /// A field's name, as a string.
    fn field(&mut self) -> Parsed<Expr<'a>> {
        let line = self.line;
        Ok(Expr { line, kind: ExprKind::Text(self.name()?.into()) })
    }

    fn call(&mut self) -> Parsed<Suffix<'a>> {
        let line = self.line;
        let method = if self.accept(":")? { Some(self.name()?) } else { None };
        Ok(Suffix::Call { line, method, args: self.arguments()? })
    }

    fn arguments(&mut self) -> Parsed<Vec<Expr<'a>>> {
        match self.token {
            Token::Symbol("(") => self.arguments_in_brackets(),
            Token::Symbol("{") => Ok(vec![self.table()?]),
            Token::Text(_) => Ok(vec![self.simple()?]),
            _ => Err(self.error("arguments were expected")),
        }
    }

    fn arguments_in_brackets(&mut self) -> Parsed<Vec<Expr<'a>>> {
        // On a new line, the bracket could also begin the next statement.
        if self.lexer.line() != self.ended_line {
            return Err(self.error("ambiguous syntax: a call, or a new statement"));
        }
        self.advance()?;
        let args = if self.is(")") { Vec::new() } else { self.expressions()? };
        self.expect(")")?;
        Ok(args)
    }

    fn table(&mut self) -> Parsed<Expr<'a>> {
        let line = self.line;
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.is("}") {
            fields.push(self.table_field()?);
            if !self.accept(",")? && !self.accept(";")? {
                break;
            }
        }
        self.expect("}")?;
        Ok(Expr { line, kind: ExprKind::Table(fields) })
    }

    fn table_field(&mut self) -> Parsed<(Option<Expr<'a>>, Expr<'a>)> {
        let key = self.table_key()?;
        Ok((key, self.expression()?))
    }

    /// `[key] =` or `name =`. Any other field has no key.
    fn table_key(&mut self) -> Parsed<Option<Expr<'a>>> {
        let key = if self.is("[") {
            self.key_in_brackets()?
        } else if matches!(self.token, Token::Name(_)) && self.is_followed_by("=")? {
            self.field()?
        } else {
            return Ok(None);
        };
        self.expect("=")?;
        Ok(Some(key))
    }
}

/// The operation on both: `right` becomes one more operand of `left` if that is an operation of the same class.
fn join<'a>(left: Expr<'a>, class: Class, right: Expr<'a>) -> Expr<'a> {
    let line = left.line;
    let operands = match left.kind {
        ExprKind::Operation(of, mut operands) if of == class => {
            operands.push(right);
            operands
        }
        kind => vec![Expr { line, kind }, right],
    };
    Expr { line, kind: ExprKind::Operation(class, operands) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree in brackets.
    fn show(expr: &Expr<'_>) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let all = |exprs: &[Expr<'_>]| exprs.iter().map(show).collect::<Vec<_>>().join(" ");
        match &expr.kind {
            ExprKind::Nil => "nil".into(),
            ExprKind::Boolean => "boolean".into(),
            ExprKind::Number(digits) => text(digits),
            ExprKind::Text(value) => format!("'{}'", text(value)),
            ExprKind::Rest => "...".into(),
            ExprKind::Name(name) => text(name),
            ExprKind::Function(function) => format!("function {}", function.number),
            ExprKind::Table(fields) => {
                format!("{{{}}}", fields.iter().map(|(_, v)| show(v)).collect::<Vec<_>>().join(" "))
            }
            ExprKind::Length(of) => format!("#{}", show(of)),
            ExprKind::Unary(of) => format!("(unary {})", show(of)),
            ExprKind::Operation(class, operands) => format!("({class:?} {})", all(operands)),
            ExprKind::Suffixed(base, suffixes) => {
                let suffixes = suffixes.iter().map(|suffix| match suffix {
                    Suffix::Index(key) => format!("[{}]", show(key)),
                    Suffix::Call { method, args, .. } => {
                        format!("{}({})", method.map_or(String::new(), text), all(args))
                    }
                });
                show(base) + &suffixes.collect::<String>()
            }
        }
    }

    #[test]
    fn operators_bind_as_the_manual_says() {
        for (text, tree) in [
            ("1 + 2 - 3 * 4", "(Arithmetic 1 2 (Arithmetic 3 4))"),
            ("a .. b .. c", "(Concat a (Concat b c))"),
            (
                "a or b and c == d .. e + -f ^ g",
                "(Or a (And b (Compare c (Concat d (Arithmetic e (unary (Arithmetic f g)))))))",
            ),
            ("not a == b", "(Compare (unary a) b)"),
            ("#KEYS ~= 3", "(Compare #KEYS 3)"),
            ("(a or b).c['d'].e(f, 'g'){h = 1; [2] = 3, 4}:i''", "(Or a b)['c']['d']['e'](f 'g')({1 3 4})i('')"),
            ("function(a, ...) return function() end end", "function 1"),
            ("...", "..."),
        ] {
            let program = format!("return {text}");
            let tree_of = parse(program.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
            let [Statement { kind: StatementKind::Return(values), .. }] = &tree_of.body[..] else { panic!("{text}") };
            assert_eq!(show(&values[0]), tree, "{text}");
        }
    }

    #[test]
    fn every_statement_is_read_with_its_line() {
        let text = "local a, b = 1\nlocal function f() end\na, b.c = 2, 3;\nf()\ndo local a end\nwhile a do break end\n\
                    repeat local x until x\nif a then elseif b then else end\nfor i = 1, 2, 3 do end\n\
                    for k, v in pairs(t) do end\nfunction a.b:c(d) end\nreturn";
        let tree = parse(text.as_bytes()).unwrap();
        let names: Vec<String> = tree
            .body
            .iter()
            .map(|statement| format!("{}{:?}", statement.line, statement.kind))
            .map(|shown| shown.chars().take_while(|c| c.is_alphanumeric()).collect())
            .collect();
        assert_eq!(
            names,
            [
                "1Local",
                "2LocalFunction",
                "3Assign",
                "4Call",
                "5Do",
                "6While",
                "7Repeat",
                "8If",
                "9CountingFor",
                "10GenericFor",
                "11Assign",
                "12Return"
            ]
        );
    }

    /// The line where `text` is refused.
    fn refused_at(text: &str) -> Option<u32> {
        parse(text.as_bytes()).err().map(|error| error.line)
    }

    #[test]
    fn broken_texts_are_refused_where_lua_refuses_them() {
        for (text, line) in [
            ("return (", 1),
            ("x", 1),
            ("x = ", 1),
            ("a.b", 1),
            ("\nif x do end", 2),
            ("for a, b = 1 do end", 1),
            ("end", 1),
            ("f(\n1 2)", 2),
            ("x.y:z = 1", 1),
            ("{}", 1),
            ("return {1 2}", 1),
            ("local 1", 1),
            ("local\n1\n", 2),
            // The next token may end on a later line than it begins.
            ("x [[\n\n]] y\nz", 4),
            ("x = y [[\n\n]] [[\n]] = 1", 4),
            ("local [[\n]]", 2),
        ] {
            assert_eq!(refused_at(text), Some(line), "{text:?}");
        }
    }

    #[test]
    fn extensions_of_lua_5_1_are_refused() {
        for text in ["goto done", "::done::", "return 1 // 2", "return 1 & 2", "return ~1", "x += 1", "return a != b"] {
            assert_eq!(refused_at(text), Some(1), "{text}");
        }
        assert_eq!(refused_at("local goto, continue = 1, 2 goto = continue return goto.goto"), None);
    }

    #[test]
    fn a_statement_ends_with_one_semicolon_at_most() {
        for text in ["a = 1; b = 2; ", "do local a; end;", "return;", "return 1;", "while a do break; end"] {
            assert_eq!(refused_at(text), None, "{text}");
        }
        for text in [";", "a = 1;;", "do ; end", "return;;", "if a then ; end"] {
            assert_eq!(refused_at(text), Some(1), "{text}");
        }
    }

    #[test]
    fn return_and_break_end_their_block() {
        for (text, line) in [
            ("return 1\nx = 2", 2),
            ("return\nlocal x", 2),
            ("while a do break\nx = 2 end", 2),
            ("repeat break break until a", 1),
            ("break", 1),
            ("break\n\n", 3),
            ("do break\nend", 2),
            ("if a then break\nend", 2),
            ("while a do end break\nx = 1", 2),
            ("while a do f(function() break\nend) end", 2),
            ("repeat until f(function()\nbreak end)", 2),
        ] {
            assert_eq!(refused_at(text), Some(line), "{text:?}");
        }
        for text in [
            "while a do if b then break end end",
            "repeat do break end until a",
            "for i = 1, 2 do local function f() while a do break end return end break end",
            "for i in f do for j in g do end break end",
            "do return end x = 1",
        ] {
            assert_eq!(refused_at(text), None, "{text}");
        }
    }

    #[test]
    fn only_vararg_functions_have_the_rest() {
        for text in [
            "return ...",
            "local function f(...) return {...} end",
            "return function(a, b, ...) return a, ... end",
            "local function f() return function(...) return ... end end return ...",
            "function a:b(...) f(...) end",
        ] {
            assert_eq!(refused_at(text), None, "{text}");
        }
        for text in [
            "return function()\nreturn ... end",
            "return function(...) local function f(a)\nreturn ... end end",
            "local function f(a\n, ... , b) end",
            "local function f(a\n,) end",
            "local function f(\n,a) end",
            "local function f(... \n...) end",
            "local function f(a\nb) end",
        ] {
            assert_eq!(refused_at(text), Some(2), "{text:?}");
        }
    }

    #[test]
    fn the_bracket_of_a_call_must_be_on_the_line_of_its_function() {
        for text in [
            "f\n(1)",
            "f\n(1):g()",
            "a = b\n(c).d = 1",
            "f(1)\n(2)",
            "a:b\n(1)",
            "a = {b, c.d\n(1)}",
            "f[[\n]] --\n(1)",
        ] {
            let line = text.matches('\n').count() as u32 + 1;
            assert_eq!(refused_at(text), Some(line), "{text:?}");
        }
        for text in
            ["f(\n1\n)(2)", "f\n{1}", "f\n'a'", "f[[\n]](1)", "a\n.b(1)", "a:b\n[[c]]", "f()\nlocal a", "(\na)(1)"]
        {
            assert_eq!(refused_at(text), None, "{text:?}");
        }
        // Lua reads one more token after a name in a table, and so forgets the line of the name.
        assert_eq!(refused_at("a = {b\n(1)}"), None);
    }

    #[test]
    fn only_names_and_indices_are_assigned_to() {
        for text in ["(a).b = 1", "a.b, c[1], d = 1", "f().a = 1", "('a').b, a:b().c = 1", "(f())()", "f{}", "a:b''"] {
            assert_eq!(refused_at(text), None, "{text}");
        }
        for text in [
            "f() = 1",
            "(a) = 1",
            "(a.b) = 1",
            "a, f() = 1",
            "a, (b) = 1",
            "(f())",
            "(a)",
            "a.b",
            "a, b",
            "f(), a = 1",
            "'a'.b = 1",
            "a:b = 1",
            "nil = 1",
            "function f.a:b.c() end",
            "function f[1]() end",
            "local a.b = 1",
        ] {
            assert_eq!(refused_at(text), Some(1), "{text}");
        }
    }

    #[test]
    fn a_table_key_is_a_bare_name_or_is_in_brackets() {
        for text in ["return {a = 1, b, [c] = 2; d == e, f.g,}", "return {a, }", "return {}"] {
            assert_eq!(refused_at(text), None, "{text}");
        }
        for text in
            ["return {(a) = 1}", "return {a.b = 1}", "return {'a' = 1}", "return {[a]}", "return {,}", "return {1,,2}"]
        {
            assert_eq!(refused_at(text), Some(1), "{text}");
        }
        assert_eq!(refused_at("return {a\n\n= 1, b\nc}"), Some(4));
    }

    #[test]
    fn a_counting_loop_has_two_or_three_bounds() {
        for text in ["for i = 1, 2 do end", "for i = 1, 2, 3 do end", "for a, b, c in d, e do end"] {
            assert_eq!(refused_at(text), None, "{text}");
        }
        for text in
            ["for i = 1 do end", "for i = 1, 2, 3, 4 do end", "for i do end", "for a.b in c do end", "for in a do end"]
        {
            assert_eq!(refused_at(text), Some(1), "{text}");
        }
    }

    #[test]
    fn blocks_and_expressions_are_levels() {
        // The main block is one level.
        for (open, close, levels) in [
            ("do ", " end", 1),
            ("while a do ", " end", 1),
            ("if a then elseif b then ", " end", 1),
            ("repeat ", " until a", 1),
            ("for i = 1, 2 do ", " end", 1),
            ("local function f() ", " end", 1),
            ("f(function() ", " end)", 2),
            ("f{function() ", " end}", 2),
        ] {
            let nested = |count: usize| format!("{}{}", open.repeat(count), close.repeat(count));
            let most = (SYNTAX_MAX_DEPTH - 1) / levels;
            assert_eq!(refused_at(&nested(most)), None, "{open}");
            assert_eq!(refused_at(&nested(most + 1)), Some(1), "{open}");
        }
        for (open, inner, close) in [
            ("(", "a", ")"),
            ("- ", "a", ""),
            ("not ", "a", ""),
            ("{", "a", "}"),
            ("f(", "a", ")"),
            ("f{", "a", "}"),
            ("a[", "a", "]"),
            ("a ..", "a", ""),
            ("a ^", "a", ""),
            ("{[a] =", "a", "}"),
            ("{a =", "a", "}"),
        ] {
            let nested = |count: usize| format!("return\n{}{inner}{}", open.repeat(count), close.repeat(count));
            assert_eq!(refused_at(&nested(SYNTAX_MAX_DEPTH - 2)), None, "{open}");
            assert_eq!(refused_at(&nested(SYNTAX_MAX_DEPTH - 1)), Some(2), "{open}");
        }
        let deep = ["(", "{", "- ", "f(", "f{", "not ", "function() return ", "a..", "{a="];
        let deep = deep.map(|open| format!("return {}", open.repeat(9_999)));
        for text in deep.iter().chain(&["do ".repeat(9_999), "f{function()".repeat(9_999)]) {
            assert_eq!(parse(text.as_bytes()).map(|_| ()).unwrap_err().fault, "too many levels");
        }
        for long in ["a.b", "a+b*c", "a()()", "a''{}"].map(|link| format!("return {}", vec![link; 99_999].join("+"))) {
            assert_eq!(refused_at(&long), None);
        }
        let many_arms = format!("if a then {}end", "elseif b then ".repeat(99_999));
        let chain = format!("return a{}", ".b:c()".repeat(99_999));
        for text in [many_arms, chain] {
            assert_eq!(refused_at(&text), None);
        }
    }
}
