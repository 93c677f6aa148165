//! Templates as programs of the engine, where calls replace operations that can build or read much.
//!
//! The engine computes operators without a limit on what they build. With constants, it even does
//! so before the template runs. So the syntax tree is copied. Operators, subscripts, slices, maps
//! and method calls become filters (see [`super::operators`]). Raw text becomes an emitted
//! constant, which the formatter sees.
//!
//! Only `minijinja::machinery` exports the parser and the code generator, and it may change with
//! each release. So Cargo.toml has the exact version.

use std::collections::BTreeMap;

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Value,
    machinery::{
        self, CodeGenerator, Instructions, Span,
        ast::{self, BinOpKind, CallArg, Expr, Spanned, Stmt},
    },
    syntax::SyntaxConfig,
};

const NAME: &str = "chat template";

/// Compiled instructions.
pub(super) struct Program<'a> {
    instructions: Instructions<'a>,
    blocks: BTreeMap<&'a str, Instructions<'a>>,
}

impl<'a> Program<'a> {
    /// # Errors
    /// If the source is invalid; the error names the line.
    pub fn new(source: &'a str, syntax: SyntaxConfig) -> Result<Self, Error> {
        let tree = statement(&machinery::parse(source, NAME, syntax)?)?;
        let mut generator = CodeGenerator::new(NAME, source);
        generator.compile_stmt(&tree);
        let (instructions, blocks) = generator.finish();
        Ok(Self { instructions, blocks })
    }

    /// Returns the text that the template writes.
    ///
    /// # Errors
    /// If the template fails; the error names the line.
    pub fn run(&self, environment: &Environment, context: Value) -> Result<String, Error> {
        let mut text = String::new();
        let mut output = machinery::make_string_output(&mut text);
        let (instructions, blocks) = (&self.instructions, &self.blocks);
        machinery::eval(environment, instructions, context, blocks, &mut output, AutoEscape::None)?;
        Ok(text)
    }
}

fn statements<'a>(body: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, Error> {
    body.iter().map(statement).collect()
}

/// # Errors
/// If the statement takes another template: there are none.
fn statement<'a>(statement: &Stmt<'a>) -> Result<Stmt<'a>, Error> {
    Ok(match statement {
        Stmt::Template(x) => {
            let children = statements(&x.children)?;
            Stmt::Template(Spanned::new(ast::Template { children }, x.span()))
        }
        Stmt::EmitExpr(x) => emit(expression(&x.expr), x.span()),
        Stmt::EmitRaw(x) => emit(constant(x.raw, x.span()), x.span()),
        Stmt::ForLoop(x) => {
            let node = ast::ForLoop {
                target: expression(&x.target),
                iter: filter("for", expression(&x.iter), vec![], x.iter.span()),
                filter_expr: x.filter_expr.as_ref().map(expression),
                recursive: x.recursive,
                body: statements(&x.body)?,
                else_body: statements(&x.else_body)?,
            };
            Stmt::ForLoop(Spanned::new(node, x.span()))
        }
        Stmt::IfCond(x) => {
            let (true_body, false_body) = (statements(&x.true_body)?, statements(&x.false_body)?);
            let node = ast::IfCond { expr: expression(&x.expr), true_body, false_body };
            Stmt::IfCond(Spanned::new(node, x.span()))
        }
        Stmt::WithBlock(x) => {
            let pair = |(target, value): &(Expr<'a>, Expr<'a>)| (expression(target), kept(value));
            let assignments = x.assignments.iter().map(pair).collect();
            let node = ast::WithBlock { assignments, body: statements(&x.body)? };
            Stmt::WithBlock(Spanned::new(node, x.span()))
        }
        Stmt::Set(x) => {
            let expr = match x.target {
                Expr::GetAttr(_) => {
                    filter("set_attribute", expression(&x.expr), vec![], x.expr.span())
                }
                _ => kept(&x.expr),
            };
            let node = ast::Set { target: expression(&x.target), expr };
            Stmt::Set(Spanned::new(node, x.span()))
        }
        Stmt::SetBlock(x) => {
            let filter = x.filter.as_ref().map(expression);
            let (target, body) = (expression(&x.target), statements(&x.body)?);
            Stmt::SetBlock(Spanned::new(ast::SetBlock { target, filter, body }, x.span()))
        }
        Stmt::FilterBlock(x) => {
            let (filter, body) = (expression(&x.filter), statements(&x.body)?);
            Stmt::FilterBlock(Spanned::new(ast::FilterBlock { filter, body }, x.span()))
        }
        Stmt::Macro(x) => Stmt::Macro(macro_(x)?),
        Stmt::CallBlock(x) if !matches!(x.call.expr, Expr::GetAttr(_)) => {
            let node = ast::CallBlock { call: call(&x.call), macro_decl: macro_(&x.macro_decl)? };
            Stmt::CallBlock(Spanned::new(node, x.span()))
        }
        Stmt::Continue(x) => Stmt::Continue(Spanned::new(ast::Continue, x.span())),
        Stmt::Break(x) => Stmt::Break(Spanned::new(ast::Break, x.span())),
        Stmt::CallBlock(x) => return Err(unsupported("call of a method", x.span())),
        Stmt::AutoEscape(x) => return Err(unsupported("autoescape", x.span())),
        Stmt::Do(x) => return Err(unsupported("do", x.span())),
        Stmt::Block(x) => return Err(unsupported("block", x.span())),
        Stmt::Import(x) => return Err(unsupported("import", x.span())),
        Stmt::FromImport(x) => return Err(unsupported("from", x.span())),
        Stmt::Extends(x) => return Err(unsupported("extends", x.span())),
        Stmt::Include(x) => return Err(unsupported("include", x.span())),
    })
}

fn unsupported(what: &str, span: Span) -> Error {
    let what = format!("{what} is not for chat templates (line {})", span.start_line);
    Error::new(ErrorKind::SyntaxError, what)
}

fn emit<'a>(expr: Expr<'a>, span: Span) -> Stmt<'a> {
    Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr }, span))
}

fn macro_<'a>(x: &Spanned<ast::Macro<'a>>) -> Result<Spanned<ast::Macro<'a>>, Error> {
    let args = x.args.iter().map(expression).collect();
    let defaults = x.defaults.iter().map(expression).collect();
    let node = ast::Macro { name: x.name, args, defaults, body: statements(&x.body)? };
    Ok(Spanned::new(node, x.span()))
}

fn constant<'a>(value: impl Into<Value>, span: Span) -> Expr<'a> {
    Expr::Const(Spanned::new(ast::Const { value: value.into() }, span))
}

fn filter<'a>(name: &'a str, expr: Expr<'a>, args: Vec<CallArg<'a>>, span: Span) -> Expr<'a> {
    Expr::Filter(Spanned::new(ast::Filter { name, expr: Some(expr), args }, span))
}

/// Wraps a value for a variable, which may outlive a pass of a loop.
fn kept<'a>(value: &Expr<'a>) -> Expr<'a> {
    filter("set", expression(value), vec![], value.span())
}

fn arguments<'a>(args: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    let many = |expr: &Expr<'a>| filter("*args", expression(expr), vec![], expr.span());
    args.iter()
        .map(|arg| match arg {
            CallArg::Pos(expr) => CallArg::Pos(expression(expr)),
            CallArg::Kwarg(name, expr) => CallArg::Kwarg(name, expression(expr)),
            CallArg::PosSplat(expr) => CallArg::PosSplat(many(expr)),
            CallArg::KwargSplat(expr) => CallArg::KwargSplat(many(expr)),
        })
        .collect()
}

fn call<'a>(x: &Spanned<ast::Call<'a>>) -> Spanned<ast::Call<'a>> {
    Spanned::new(ast::Call { expr: expression(&x.expr), args: arguments(&x.args) }, x.span())
}

fn expression<'a>(expr: &Expr<'a>) -> Expr<'a> {
    let span = expr.span();
    let pos = |expr: &Expr<'a>| CallArg::Pos(expression(expr));
    let all = |items: &[Expr<'a>]| items.iter().map(expression).collect();
    match expr {
        Expr::Var(x) => Expr::Var(Spanned::new(ast::Var { id: x.id }, span)),
        Expr::Const(x) => constant(x.value.clone(), span),
        Expr::Slice(x) => {
            let bound = |bound: &Option<Expr<'a>>| match bound {
                Some(bound) => pos(bound),
                None => CallArg::Pos(constant((), span)),
            };
            let bounds = vec![bound(&x.start), bound(&x.stop), bound(&x.step)];
            filter("[:]", expression(&x.expr), bounds, span)
        }
        Expr::UnaryOp(x) => {
            // The kind is not `Copy`.
            let not = matches!(x.op, ast::UnaryOpKind::Not);
            let op = if not { ast::UnaryOpKind::Not } else { ast::UnaryOpKind::Neg };
            Expr::UnaryOp(Spanned::new(ast::UnaryOp { op, expr: expression(&x.expr) }, span))
        }
        Expr::BinOp(x) => {
            let name = match x.op {
                BinOpKind::Add => "+",
                BinOpKind::Mul => "*",
                BinOpKind::Rem => "%",
                BinOpKind::Concat => "~",
                BinOpKind::Eq => "==",
                BinOpKind::Ne => "!=",
                BinOpKind::Lt => "<",
                BinOpKind::Lte => "<=",
                BinOpKind::Gt => ">",
                BinOpKind::Gte => ">=",
                BinOpKind::In => "in",
                // They choose one of two values, or compute a number.
                op @ (BinOpKind::ScAnd
                | BinOpKind::ScOr
                | BinOpKind::Sub
                | BinOpKind::Div
                | BinOpKind::FloorDiv
                | BinOpKind::Pow) => {
                    let (left, right) = (expression(&x.left), expression(&x.right));
                    return Expr::BinOp(Spanned::new(ast::BinOp { op, left, right }, span));
                }
            };
            filter(name, expression(&x.left), vec![pos(&x.right)], span)
        }
        Expr::Compare(x) => {
            // All operands are computed, even after a comparison that is false.
            let mut args = Vec::new();
            for op in &x.ops {
                args.push(CallArg::Pos(constant(comparison(op.op), span)));
                args.push(pos(&op.expr));
            }
            filter("compare", expression(&x.expr), args, span)
        }
        Expr::IfExpr(x) => {
            let node = ast::IfExpr {
                test_expr: expression(&x.test_expr),
                true_expr: expression(&x.true_expr),
                false_expr: x.false_expr.as_ref().map(expression),
            };
            Expr::IfExpr(Spanned::new(node, span))
        }
        Expr::Filter(x) => {
            let (expr, args) = (x.expr.as_ref().map(expression), arguments(&x.args));
            Expr::Filter(Spanned::new(ast::Filter { name: x.name, expr, args }, span))
        }
        Expr::Test(x) => {
            let (expr, args) = (expression(&x.expr), arguments(&x.args));
            Expr::Test(Spanned::new(ast::Test { name: x.name, expr, args }, span))
        }
        Expr::GetAttr(x) => {
            let node = ast::GetAttr { expr: expression(&x.expr), name: x.name };
            Expr::GetAttr(Spanned::new(node, span))
        }
        Expr::GetItem(x) => filter("[]", expression(&x.expr), vec![pos(&x.subscript_expr)], span),
        Expr::Call(x) => match &x.expr {
            Expr::GetAttr(method) => {
                let mut args = vec![CallArg::Pos(constant(method.name, span))];
                args.extend(arguments(&x.args));
                filter(".()", expression(&method.expr), args, span)
            }
            _ => Expr::Call(call(x)),
        },
        Expr::List(x) => Expr::List(Spanned::new(ast::List { items: all(&x.items) }, span)),
        Expr::Tuple(x) => Expr::Tuple(Spanned::new(ast::Tuple { items: all(&x.items) }, span)),
        Expr::Map(x) => {
            let pairs = x.keys.iter().zip(&x.values);
            let mut items = pairs.flat_map(|(key, value)| [expression(key), expression(value)]);
            match items.next() {
                Some(first) => filter("{}", first, items.map(CallArg::Pos).collect(), span),
                None => Expr::Map(Spanned::new(ast::Map { keys: vec![], values: vec![] }, span)),
            }
        }
    }
}

fn comparison(op: ast::CompareOpKind) -> &'static str {
    match op {
        ast::CompareOpKind::Eq => "==",
        ast::CompareOpKind::Ne => "!=",
        ast::CompareOpKind::Lt => "<",
        ast::CompareOpKind::Lte => "<=",
        ast::CompareOpKind::Gt => ">",
        ast::CompareOpKind::Gte => ">=",
        ast::CompareOpKind::In => "in",
        ast::CompareOpKind::NotIn => "not in",
    }
}
