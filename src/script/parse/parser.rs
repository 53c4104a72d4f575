//! Tokens to trees: recursive descent, with precedence climbing for operators.

use super::lexer::{Lexer, Token};
use super::{Block, Class, Expr, ExprKind, Function, Name, Statement, StatementKind, Suffix, SyntaxError};
use crate::base::limits::SYNTAX_MAX_DEPTH;

/// Reads a whole program as a function without parameters.
pub(crate) fn parse(text: &[u8]) -> Result<Function<'_>, SyntaxError> {
    let mut parser =
        Parser { lexer: Lexer::new(text), token: Token::End, line: 1, ended_line: 1, depth: 0, functions: 1 };
    parser.advance()?;
    let body = parser.block()?;
    match parser.token {
        Token::End => Ok(Function { number: 0, parameters: Vec::new(), body }),
        _ => Err(parser.error("unexpected symbol")),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token, and its line.
    token: Token<'a>,
    line: u32,
    /// The line of the token before.
    ended_line: u32,
    depth: usize,
    /// How many have begun.
    functions: usize,
}

/// Binary operators: how strongly they bind to the left and to the right, and their class.
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

/// How strongly `-`, `not` and `#` bind.
const UNARY: u8 = 8;

type Parsed<T> = Result<T, SyntaxError>;

impl<'a> Parser<'a> {
    fn error(&self, fault: &'static str) -> SyntaxError {
        SyntaxError { line: self.line, fault }
    }

    /// Answers the token that was next, and reads one more.
    fn advance(&mut self) -> Parsed<Token<'a>> {
        self.ended_line = self.line;
        self.lexer.skip_blanks()?;
        self.line = self.lexer.line();
        let next = self.lexer.token()?;
        Ok(std::mem::replace(&mut self.token, next))
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
        match self.advance()? {
            Token::Name(name) => Ok(name),
            _ => Err(SyntaxError { line: self.ended_line, fault: "a name was expected" }),
        }
    }

    /// Goes one level deeper for the time of `parse`.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == SYNTAX_MAX_DEPTH {
            return Err(self.error("too many levels"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Items with commas between them.
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
        let mut statements = Vec::new();
        while !self.ends_block() {
            if self.accept(";")? {
                continue;
            }
            let line = self.line;
            let kind = self.nested(Self::statement)?;
            statements.push(Statement { line, kind });
        }
        Ok(statements)
    }

    /// A block and the `end` behind it.
    fn block_to_end(&mut self) -> Parsed<Block<'a>> {
        let block = self.block()?;
        self.expect("end")?;
        Ok(block)
    }

    fn statement(&mut self) -> Parsed<StatementKind<'a>> {
        let Token::Symbol(symbol) = self.token else { return self.expression_statement() };
        match symbol {
            "local" | "do" | "while" | "repeat" | "if" | "for" | "function" | "return" | "break" | "goto" | "::" => {
                self.advance()?;
            }
            _ => return self.expression_statement(),
        }
        match symbol {
            "local" => self.local(),
            "do" => Ok(StatementKind::Do(self.block_to_end()?)),
            "while" => {
                let condition = self.expression()?;
                self.expect("do")?;
                Ok(StatementKind::While { condition, body: self.block_to_end()? })
            }
            "repeat" => {
                let body = self.block()?;
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
            "goto" => self.name().map(|_| StatementKind::Jump),
            "::" => {
                self.name()?;
                self.expect("::")?;
                Ok(StatementKind::Jump)
            }
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
        let mut names = self.list(Self::name)?;
        let is_counting = names.len() == 1 && self.accept("=")?;
        if !is_counting {
            self.expect("in")?;
        }
        let values = self.expressions()?;
        self.expect("do")?;
        let body = self.block_to_end()?;
        Ok(match is_counting {
            true => StatementKind::CountingFor { name: names.remove(0), bounds: values, body },
            false => StatementKind::GenericFor { names, values, body },
        })
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
        let first = self.suffixed()?;
        if self.is("=") || self.is(",") {
            let mut targets = vec![first];
            while self.accept(",")? {
                targets.push(self.suffixed()?);
            }
            self.expect("=")?;
            return Ok(StatementKind::Assign { targets, values: self.expressions()? });
        }
        match &first.kind {
            ExprKind::Suffixed(_, suffixes) if matches!(suffixes.last(), Some(Suffix::Call { .. })) => {
                Ok(StatementKind::Call(first))
            }
            _ => Err(self.error("a statement was expected")),
        }
    }

    /// What follows the word `function` and the name. `own` are parameters that are not written.
    fn function(&mut self, own: &[Name<'a>]) -> Parsed<Box<Function<'a>>> {
        let number = self.functions;
        self.functions += 1;
        let mut parameters = own.to_vec();
        self.expect("(")?;
        while !self.is(")") {
            if !self.accept("...")? {
                parameters.push(self.name()?);
            }
            if !self.accept(",")? {
                break;
            }
        }
        self.expect(")")?;
        Ok(Box::new(Function { number, parameters, body: self.block_to_end()? }))
    }

    fn expression(&mut self) -> Parsed<Expr<'a>> {
        self.operation(0)
    }

    /// An expression of operators that bind more strongly than `limit`.
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
            Token::Symbol("nil" | "true" | "false") => ExprKind::Constant,
            Token::Symbol("...") => ExprKind::Rest,
            Token::Symbol("{") => return self.table(),
            Token::Symbol("function") => {
                self.advance()?;
                return Ok(Expr { line, kind: ExprKind::Function(self.function(&[])?) });
            }
            _ => return self.suffixed(),
        };
        self.advance()?;
        Ok(Expr { line, kind })
    }

    /// A name or an expression in brackets, with all that follows it.
    fn suffixed(&mut self) -> Parsed<Expr<'a>> {
        let line = self.line;
        let base = if self.accept("(")? {
            let inner = self.expression()?;
            self.expect(")")?;
            inner
        } else {
            Expr { line, kind: ExprKind::Name(self.name()?) }
        };
        let mut suffixes = Vec::new();
        loop {
            let line = self.line;
            if self.accept(".")? {
                suffixes.push(Suffix::Index(self.field()?));
            } else if self.accept("[")? {
                suffixes.push(Suffix::Index(self.expression()?));
                self.expect("]")?;
            } else if self.accept(":")? {
                let method = Some(self.name()?);
                let args = self.arguments()?.ok_or(self.error("arguments were expected"))?;
                suffixes.push(Suffix::Call { line, method, args });
            } else if let Some(args) = self.arguments()? {
                suffixes.push(Suffix::Call { line, method: None, args });
            } else {
                break;
            }
        }
        Ok(if suffixes.is_empty() { base } else { Expr { line, kind: ExprKind::Suffixed(Box::new(base), suffixes) } })
    }

    /// A field's name, as the text that it stands for.
    fn field(&mut self) -> Parsed<Expr<'a>> {
        let line = self.line;
        Ok(Expr { line, kind: ExprKind::Text(self.name()?.into()) })
    }

    fn arguments(&mut self) -> Parsed<Option<Vec<Expr<'a>>>> {
        if matches!(self.token, Token::Text(_) | Token::Symbol("{")) {
            return Ok(Some(vec![self.nested(Self::simple)?]));
        }
        if !self.accept("(")? {
            return Ok(None);
        }
        let args = if self.is(")") { Vec::new() } else { self.expressions()? };
        self.expect(")")?;
        Ok(Some(args))
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
        if self.accept("[")? {
            let key = self.expression()?;
            self.expect("]")?;
            self.expect("=")?;
            return Ok((Some(key), self.expression()?));
        }
        let value = self.expression()?;
        match value.kind {
            // A name alone, and `=` behind it: it is the key.
            ExprKind::Name(name) if self.accept("=")? => {
                let key = Expr { line: value.line, kind: ExprKind::Text(name.into()) };
                Ok((Some(key), self.expression()?))
            }
            _ => Ok((None, value)),
        }
    }
}

/// The operation on both, as one more operand of `left` if that is an operation of the same class.
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
            ExprKind::Constant => "constant".into(),
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
        let text = "local a, b = 1\nlocal function f() end\na, b.c = 2, 3;\nf()\ndo break end\nwhile a do end\n\
                    repeat local x until x\nif a then elseif b then else end\nfor i = 1, 2, 3 do end\n\
                    for k, v in pairs(t) do end\nfunction a.b:c(d) end\ngoto done ::done::\nreturn";
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
                "12Jump",
                "12Jump",
                "13Return"
            ]
        );
    }

    #[test]
    fn broken_and_deep_texts_are_refused() {
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
        ] {
            assert_eq!(parse(text.as_bytes()).map(|_| ()).unwrap_err().line, line, "{text}");
        }
        let deep =
            ["(", "{", "- ", "f(", "not ", "function() return "].map(|open| format!("return {}", open.repeat(9_999)));
        for text in deep.iter().chain(&["do ".repeat(9_999), format!("return {}", "a..".repeat(9_999))]) {
            assert_eq!(parse(text.as_bytes()).map(|_| ()).unwrap_err().fault, "too many levels");
        }
        for long in ["a.b", "a+b*c", "a()()"].map(|link| format!("return {}", vec![link; 99_999].join("+"))) {
            assert!(parse(long.as_bytes()).is_ok());
        }
        let chain = format!("return a{}", ".b:c()".repeat(99_999));
        assert!(parse(chain.as_bytes()).is_ok());
    }
}
