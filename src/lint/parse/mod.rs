//! Lua programs as trees, for those who look at a script without running it.
//!
//! The language is Lua 5.1 as the server compiles it, and nothing else: a text is read if the server compiles it, and
//! refused at the same line if not. Only the limits of one function (locals, upvalues, constants) are not looked at.
//!
//! The tree keeps what tells where values come from and go to, each with its line; what only computes is simplified:
//! operators of one class are one node, and a chain of operators or of suffixes (`a.b(c):d()`) is flat. The depth of a
//! tree is so bounded by that of the blocks and expressions in its text ([`SYNTAX_MAX_DEPTH`], as in Lua 5.1). Whoever
//! walks it by recursion is as safe as whoever frees it.
//!
//! Source: the Lua 5.1 reference manual, section 8; llex.c and lparser.c of Lua 5.1 for what the manual leaves open.
//!
//! [`SYNTAX_MAX_DEPTH`]: crate::base::limits::SYNTAX_MAX_DEPTH

mod lexer;
pub(super) mod parser;

use std::borrow::Cow;

/// A name, as it stands in the text.
pub(crate) type Name<'a> = &'a [u8];

/// Statements in order.
pub(crate) type Block<'a> = Vec<Statement<'a>>;

/// Why a text is no Lua program, or none that is looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct SyntaxError {
    /// Where, from 1.
    pub line: u32,
    /// What is wrong.
    pub fault: &'static str,
}

/// A statement and the line where it begins.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
    /// From 1.
    pub line: u32,
    /// What it is.
    pub kind: StatementKind<'a>,
}

/// What a statement is.
#[derive(Debug)]
#[allow(missing_docs)]
pub(crate) enum StatementKind<'a> {
    Local {
        names: Vec<Name<'a>>,
        values: Vec<Expr<'a>>,
    },
    LocalFunction {
        name: Name<'a>,
        function: Box<Function<'a>>,
    },
    /// Also `function a.b() end`.
    Assign {
        targets: Vec<Expr<'a>>,
        values: Vec<Expr<'a>>,
    },
    Call(Expr<'a>),
    Do(Block<'a>),
    While {
        condition: Expr<'a>,
        body: Block<'a>,
    },
    Repeat {
        body: Block<'a>,
        condition: Expr<'a>,
    },
    If {
        arms: Vec<(Expr<'a>, Block<'a>)>,
        otherwise: Block<'a>,
    },
    CountingFor {
        name: Name<'a>,
        bounds: Vec<Expr<'a>>,
        body: Block<'a>,
    },
    GenericFor {
        names: Vec<Name<'a>>,
        values: Vec<Expr<'a>>,
        body: Block<'a>,
    },
    Return(Vec<Expr<'a>>),
    /// `break`
    Jump,
}

/// An expression and the line where it begins.
#[derive(Debug)]
pub(crate) struct Expr<'a> {
    /// From 1.
    pub line: u32,
    /// What it is.
    pub kind: ExprKind<'a>,
}

/// What an expression is.
#[derive(Debug)]
#[allow(missing_docs)]
pub(crate) enum ExprKind<'a> {
    Nil,
    Boolean,
    Number(&'a [u8]),
    Text(Cow<'a, [u8]>),
    /// `...`
    Rest,
    Name(Name<'a>),
    Function(Box<Function<'a>>),
    /// The values of the fields, each with its key if it has one.
    Table(Vec<(Option<Expr<'a>>, Expr<'a>)>),
    /// `#` of something.
    Length(Box<Expr<'a>>),
    /// Two operands or more.
    Operation(Class, Vec<Expr<'a>>),
    /// `-x`, `not x`.
    Unary(Box<Expr<'a>>),
    Suffixed(Box<Expr<'a>>, Vec<Suffix<'a>>),
}

/// What operators have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Class {
    Or,
    And,
    Compare,
    Concat,
    Arithmetic,
}

/// What follows a value.
#[derive(Debug)]
#[allow(missing_docs)]
pub(crate) enum Suffix<'a> {
    /// `[key]`, `.key`
    Index(Expr<'a>),
    /// `(args)`, `:method(args)`; where the bracket stands.
    Call { line: u32, method: Option<Name<'a>>, args: Vec<Expr<'a>> },
}

/// A function.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    /// Its place among all functions of the text, in the order in which they begin.
    pub number: usize,
    /// Its parameters but for `...`; `self` first where it is a method.
    pub parameters: Vec<Name<'a>>,
    /// What it does.
    pub body: Block<'a>,
}
