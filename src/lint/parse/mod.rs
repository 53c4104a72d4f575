//! Lua programs as trees, for code that examines a script without running it.
//!
//! The language is exactly Lua 5.1 as the server compiles it. The parser accepts a text if the server compiles it, and
//! otherwise refuses it at the same line. Only the limits of one function (locals, upvalues, constants) are not
//! checked.
//!
//! The tree keeps the sources and uses of values, each with its line. Computation is simplified: operators of one class
//! are one node, and a chain of operators or of suffixes (`a.b(c):d()`) is flat. So the depth of a tree is bounded by
//! the nesting of blocks and expressions in its text ([`SYNTAX_MAX_DEPTH`], as in Lua 5.1), and it is safe to walk or
//! free it by recursion.
//!
//! Source: the Lua 5.1 reference manual, section 8; where it leaves questions open, llex.c and lparser.c of Lua 5.1.
//!
//! [`SYNTAX_MAX_DEPTH`]: crate::lint::limits::SYNTAX_MAX_DEPTH

mod lexer;
pub(super) mod parser;

use std::borrow::Cow;

/// A name, as written in the text.
pub(crate) type Name<'a> = &'a [u8];

/// Statements in order.
pub(crate) type Block<'a> = Vec<Statement<'a>>;

/// Why a text is not a Lua program, or not one that can be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: u32,
    /// The fault.
    pub fault: &'static str,
}

/// A statement and the line on which it begins.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
    /// From 1.
    pub line: u32,
    /// Its kind.
    pub kind: StatementKind<'a>,
}

/// The kinds of statements.
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

/// An expression and the line on which it begins.
#[derive(Debug)]
pub(crate) struct Expr<'a> {
    /// From 1.
    pub line: u32,
    /// Its kind.
    pub kind: ExprKind<'a>,
}

/// The kinds of expressions.
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
    /// The fields: an optional key, and the value.
    Table(Vec<(Option<Expr<'a>>, Expr<'a>)>),
    /// `#x`.
    Length(Box<Expr<'a>>),
    /// At least two operands.
    Operation(Class, Vec<Expr<'a>>),
    /// `-x`, `not x`.
    Unary(Box<Expr<'a>>),
    Suffixed(Box<Expr<'a>>, Vec<Suffix<'a>>),
}

/// Classes of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Class {
    Or,
    And,
    Compare,
    Concat,
    Arithmetic,
}

/// A suffix of a value.
#[derive(Debug)]
#[allow(missing_docs)]
pub(crate) enum Suffix<'a> {
    /// `[key]`, `.key`
    Index(Expr<'a>),
    /// `(args)`, `:method(args)`; the line is that of the bracket.
    Call { line: u32, method: Option<Name<'a>>, args: Vec<Expr<'a>> },
}

/// A function.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    /// Its number among all functions of the text, in the order in which they begin.
    pub number: usize,
    /// Its parameters except `...`; those of a method begin with `self`.
    pub parameters: Vec<Name<'a>>,
    /// Its statements.
    pub body: Block<'a>,
}
