//! Checks a parsed expression against what is declared, and makes of it what is evaluated.
//!
//! Whatever can be told at load is refused at load: names and functions that are not there, argument counts, types that
//! do not fit, constants that have no value.

use cel::common::ast::operators as names;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr, SourceInfo};

use super::evaluate::{Arithmetic, Evaluator, FoldKind, Node, NodeKind, Order, Variable};
use super::functions::{Kind, PARTS, Part, SIGNATURES, Signature, Style};
use super::limits::{MAX_DEPTH, MAX_NODES};
use super::pattern;
use super::problem::{ExpressionProblem, Place};
use super::times::parse_offset;
use super::types::{Type, is_operator, result_of, symbol};
use super::value::{Meter, Text, Value};

/// A checked node.
struct Checked {
    node: Node,
    of: Type,
}

type Result<T> = std::result::Result<T, ExpressionProblem>;

/// Checks a parsed expression.
///
/// # Errors
/// The first problem found, and where.
pub(super) fn check(parsed: &IdedExpr, source: &SourceInfo) -> Result<Node> {
    let mut checker = Checker { source, nodes: 0, depth: 0, element: None, in_comprehension: false };
    let checked = checker.check(parsed)?;
    match checked.of.kind() {
        None | Some(Kind::Bool) => Ok(checked.node),
        Some(kind) => {
            let message = format!("an expression has to be a bool, and this is {}", kind.described());
            Err(ExpressionProblem::whole(message))
        }
    }
}

struct Checker<'a> {
    source: &'a SourceInfo,
    nodes: usize,
    depth: usize,
    /// The comprehension's variable, where one is in scope.
    element: Option<(String, Type)>,
    in_comprehension: bool,
}

impl Checker<'_> {
    fn offset(&self, parsed: &IdedExpr) -> usize {
        self.source.offset_for(parsed.id).and_then(|(start, _)| usize::try_from(start).ok()).unwrap_or(0)
    }

    fn problem<T>(&self, parsed: &IdedExpr, message: impl Into<String>) -> Result<T> {
        Err(ExpressionProblem::at(Place::of(&self.source.source, self.offset(parsed)), message))
    }

    fn check(&mut self, parsed: &IdedExpr) -> Result<Checked> {
        self.nodes += 1;
        self.depth += 1;
        if self.nodes > MAX_NODES {
            return self.problem(parsed, format!("an expression has at most {MAX_NODES} operators, names and values"));
        }
        if self.depth > MAX_DEPTH {
            return self.problem(parsed, format!("an expression is at most {MAX_DEPTH} operators deep"));
        }
        let checked = match &parsed.expr {
            Expr::Literal(literal) => self.literal(parsed, literal),
            Expr::Ident(name) => self.name(parsed, name),
            Expr::Select(select) => self.select(parsed, select),
            Expr::Call(call) => self.call(parsed, call),
            Expr::List(list) => self.list(parsed, list),
            Expr::Map(map) => self.map(parsed, map),
            Expr::Struct(_) => self.problem(parsed, "messages are not available: write a map"),
            Expr::Comprehension(_) | Expr::Unspecified => self.problem(parsed, "this part was not understood"),
        }?;
        self.depth -= 1;
        Ok(checked)
    }

    fn node(&self, parsed: &IdedExpr, kind: NodeKind, of: Type) -> Checked {
        Checked { node: Node { offset: self.offset(parsed), kind }, of }
    }

    /// A node over these operands: computed now, where all of them are constants.
    fn operation(&self, parsed: &IdedExpr, constant: bool, kind: NodeKind, of: Type) -> Result<Checked> {
        let checked = self.node(parsed, kind, of);
        if !constant {
            return Ok(checked);
        }
        match Evaluator::new(None, &mut Meter::full()).evaluate(&checked.node) {
            Ok(value) => Ok(self.node(parsed, NodeKind::Constant(value.into_owned()), checked.of)),
            Err(fault) => self.problem(parsed, format!("this never has a value: {}", fault.reason.text())),
        }
    }

    fn literal(&self, parsed: &IdedExpr, literal: &LiteralValue) -> Result<Checked> {
        let (value, kind) = match literal {
            LiteralValue::Null => (Value::Null, Kind::Null),
            LiteralValue::Boolean(value) => (Value::Bool(*value.inner()), Kind::Bool),
            LiteralValue::Int(value) => (Value::Int(*value.inner()), Kind::Int),
            LiteralValue::Double(value) if value.inner().is_finite() => (Value::Double(*value.inner()), Kind::Double),
            LiteralValue::Double(_) => return self.problem(parsed, "this number is out of range"),
            LiteralValue::String(text) => (Value::Text(Text::Built(text.inner().into())), Kind::String),
            LiteralValue::Bytes(_) => {
                return self.problem(parsed, "bytes are not available: arguments never are bytes");
            }
            LiteralValue::UInt(_) => {
                return self.problem(parsed, "unsigned integers are not available: leave out the u");
            }
        };
        Ok(self.node(parsed, NodeKind::Constant(value), Type::Of(kind)))
    }

    fn name(&self, parsed: &IdedExpr, name: &str) -> Result<Checked> {
        if let Some((element, of)) = &self.element
            && element == name
        {
            return Ok(self.node(parsed, NodeKind::Element, of.clone()));
        }
        match Variable::named(name) {
            Some((variable, of)) => Ok(self.node(parsed, NodeKind::Variable(variable), of)),
            None => self.problem(parsed, format!("`{name}` is not declared: there are {}", Variable::NAMES)),
        }
    }

    fn select(&mut self, parsed: &IdedExpr, select: &SelectExpr) -> Result<Checked> {
        let operand = self.check(&select.operand)?;
        self.expect(parsed, &operand, &[Kind::Map], &format!("`.{}`", select.field))?;
        let constant = operand.is_constant();
        let name = select.field.as_str().into();
        self.operation(parsed, constant, NodeKind::Member { operand: operand.boxed(), name }, Type::Any)
    }

    /// Refuses what can be told to be of none of these kinds.
    fn expect(&self, parsed: &IdedExpr, checked: &Checked, kinds: &[Kind], what: &str) -> Result<()> {
        match checked.of.kind() {
            Some(kind) if !kinds.contains(&kind) => {
                let kinds = kinds.iter().map(|kind| kind.described()).collect::<Vec<_>>().join(" or ");
                self.problem(parsed, format!("{what} takes {kinds}, not {}", kind.described()))
            }
            _ => Ok(()),
        }
    }

    fn call(&mut self, parsed: &IdedExpr, call: &CallExpr) -> Result<Checked> {
        let name = call.func_name.as_str();
        match (&call.target, call.args.as_slice()) {
            (None, [condition, then, otherwise]) if name == names::CONDITIONAL => {
                self.choice(parsed, condition, then, otherwise)
            }
            (None, [operand]) if name == names::LOGICAL_NOT => {
                let operand = self.check(operand)?;
                self.expect(parsed, &operand, &[Kind::Bool], "`!`")?;
                self.operation(parsed, operand.is_constant(), NodeKind::Not(operand.boxed()), Type::Of(Kind::Bool))
            }
            (None, [operand]) if name == names::NEGATE => {
                let operand = self.check(operand)?;
                self.expect(parsed, &operand, &[Kind::Int, Kind::Double], "`-`")?;
                let of = operand.of.clone();
                self.operation(parsed, operand.is_constant(), NodeKind::Negate(operand.boxed()), of)
            }
            (None, _) if name == names::OPT_INDEX || name == names::OPT_SELECT => {
                self.problem(parsed, "optional values are not available: ask with `has` first")
            }
            (None, [left, right]) if is_operator(name) => self.binary(parsed, name, left, right),
            (None, arguments) if name == names::HAS => self.has(parsed, arguments),
            (Some(range), arguments) if fold_named(name).is_some() => {
                self.comprehension(parsed, name, range, arguments)
            }
            (target, arguments) if name == "matches" => {
                let operands = target.as_deref().into_iter().chain(arguments).collect::<Vec<_>>();
                self.matches(parsed, &operands)
            }
            (target, arguments) => self.function(parsed, name, target.as_deref(), arguments),
        }
    }

    fn choice(
        &mut self,
        parsed: &IdedExpr,
        condition: &IdedExpr,
        then: &IdedExpr,
        otherwise: &IdedExpr,
    ) -> Result<Checked> {
        let (condition, then, otherwise) = (self.check(condition)?, self.check(then)?, self.check(otherwise)?);
        self.expect(parsed, &condition, &[Kind::Bool], "`?`")?;
        let constant = condition.is_constant() && then.is_constant() && otherwise.is_constant();
        let of = then.of.clone().or(&otherwise.of);
        let kind = NodeKind::Choice { condition: condition.boxed(), then: then.boxed(), otherwise: otherwise.boxed() };
        self.operation(parsed, constant, kind, of)
    }

    fn binary(&mut self, parsed: &IdedExpr, name: &str, left: &IdedExpr, right: &IdedExpr) -> Result<Checked> {
        let (left, right) = (self.check(left)?, self.check(right)?);
        let constant = left.is_constant() && right.is_constant();
        let of = match result_of(name, &left.of, &right.of) {
            Some(of) => of,
            None => {
                let kind = |of: &Type| of.kind().map_or("a value of any type", Kind::described);
                let message =
                    format!("`{}` is not defined for {} and {}", symbol(name), kind(&left.of), kind(&right.of));
                return self.problem(parsed, message);
            }
        };
        let (left, right) = (left.boxed(), right.boxed());
        let kind = match name {
            names::LOGICAL_OR => NodeKind::Logic { decisive: true, left, right },
            names::LOGICAL_AND => NodeKind::Logic { decisive: false, left, right },
            names::EQUALS => NodeKind::Equality { equal: true, left, right },
            names::NOT_EQUALS => NodeKind::Equality { equal: false, left, right },
            names::LESS => NodeKind::Order { order: Order::Less, left, right },
            names::LESS_EQUALS => NodeKind::Order { order: Order::LessOrEqual, left, right },
            names::GREATER => NodeKind::Order { order: Order::Greater, left, right },
            names::GREATER_EQUALS => NodeKind::Order { order: Order::GreaterOrEqual, left, right },
            names::IN => NodeKind::In { element: left, container: right },
            names::INDEX => NodeKind::Index { operand: left, index: right },
            names::ADD => NodeKind::Arithmetic { operator: Arithmetic::Add, left, right },
            names::SUBSTRACT => NodeKind::Arithmetic { operator: Arithmetic::Subtract, left, right },
            names::MULTIPLY => NodeKind::Arithmetic { operator: Arithmetic::Multiply, left, right },
            names::DIVIDE => NodeKind::Arithmetic { operator: Arithmetic::Divide, left, right },
            names::MODULO => NodeKind::Arithmetic { operator: Arithmetic::Remainder, left, right },
            _ => return self.problem(parsed, "this part was not understood"),
        };
        self.operation(parsed, constant, kind, of)
    }

    fn has(&mut self, parsed: &IdedExpr, arguments: &[IdedExpr]) -> Result<Checked> {
        let [IdedExpr { expr: Expr::Select(select), .. }] = arguments else {
            return self.problem(parsed, "`has` takes one member, such as has(args.subject)");
        };
        let operand = self.check(&select.operand)?;
        self.expect(parsed, &operand, &[Kind::Map], "`has`")?;
        let constant = operand.is_constant();
        let name = select.field.as_str().into();
        self.operation(parsed, constant, NodeKind::Has { operand: operand.boxed(), name }, Type::Of(Kind::Bool))
    }

    fn comprehension(
        &mut self,
        parsed: &IdedExpr,
        name: &str,
        range: &IdedExpr,
        arguments: &[IdedExpr],
    ) -> Result<Checked> {
        let (variable, body, transform) = match (fold_named(name), arguments) {
            (Some(_), [variable, body]) => (variable, body, None),
            (Some(FoldKind::Map), [variable, body, transform]) => (variable, body, Some(transform)),
            _ => return self.problem(parsed, format!("`{name}` takes a variable and an expression over it")),
        };
        let fold = fold_named(name).unwrap_or(FoldKind::All);
        if self.in_comprehension {
            return self.problem(parsed, format!("`{name}` stands within another comprehension: they do not nest"));
        }
        let Expr::Ident(variable_name) = &variable.expr else {
            return self.problem(variable, format!("the first argument of `{name}` is the name of a variable"));
        };
        if Variable::named(variable_name).is_some() || variable_name.starts_with('.') {
            return self.problem(variable, format!("`{variable_name}` cannot name the variable of a comprehension"));
        }
        let range = self.check(range)?;
        self.expect(parsed, &range, &[Kind::List, Kind::Map], &format!("`{name}`"))?;
        let element = match &range.of {
            Type::List(element) => (**element).clone(),
            Type::Of(_) => Type::Of(Kind::String),
            Type::Any => Type::Any,
        };
        self.in_comprehension = true;
        self.element = Some((variable_name.clone(), element.clone()));
        let body = self.check(body)?;
        let transform = transform.map(|transform| self.check(transform)).transpose()?;
        self.element = None;
        self.in_comprehension = false;
        if fold != FoldKind::Map || transform.is_some() {
            self.expect(parsed, &body, &[Kind::Bool], &format!("the condition of `{name}`"))?;
        }
        let of = match fold {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => Type::Of(Kind::Bool),
            FoldKind::Filter => Type::List(Box::new(element)),
            FoldKind::Map => Type::List(Box::new(transform.as_ref().unwrap_or(&body).of.clone())),
        };
        let transform = transform.map(Checked::boxed);
        Ok(self.node(parsed, NodeKind::Comprehension { fold, range: range.boxed(), body: body.boxed(), transform }, of))
    }

    fn matches(&mut self, parsed: &IdedExpr, operands: &[&IdedExpr]) -> Result<Checked> {
        let [operand, literal] = operands else {
            return self.problem(parsed, "`matches` takes a string and a pattern");
        };
        let operand = self.check(operand)?;
        self.expect(parsed, &operand, &[Kind::String], "`matches`")?;
        let Expr::Literal(LiteralValue::String(text)) = &literal.expr else {
            return self.problem(literal, "the pattern of `matches` has to be a literal string");
        };
        self.nodes += 1;
        let pattern = match pattern::compile(text.inner()) {
            Ok(pattern) => pattern,
            Err(message) => return self.problem(literal, message),
        };
        let constant = operand.is_constant();
        let kind = NodeKind::Matches { operand: operand.boxed(), pattern };
        self.operation(parsed, constant, kind, Type::Of(Kind::Bool))
    }

    fn function(
        &mut self,
        parsed: &IdedExpr,
        name: &str,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> Result<Checked> {
        if let Some((_, part)) = PARTS.iter().find(|(part, _)| *part == name) {
            return self.part(parsed, name, *part, target, arguments);
        }
        let Some(signature) = SIGNATURES.iter().find(|signature| signature.name == name) else {
            return self.problem(parsed, unknown_function(name));
        };
        let style_fits = match signature.style {
            Style::Both => true,
            Style::Global => target.is_none(),
            Style::Member => target.is_some(),
        };
        let operands = target.into_iter().chain(arguments).collect::<Vec<_>>();
        let (operand, argument) = match (operands.as_slice(), signature.argument) {
            ([operand], None) if style_fits => (operand, None),
            ([operand, argument], Some(kinds)) if style_fits => (operand, Some((argument, kinds))),
            _ => return self.problem(parsed, format!("`{name}` is called as {}", usage(signature))),
        };
        let operand = self.check(operand)?;
        self.expect(parsed, &operand, signature.operand, &format!("`{name}`"))?;
        let argument = match argument {
            Some((argument, kinds)) => {
                let argument = self.check(argument)?;
                self.expect(parsed, &argument, kinds, &format!("the argument of `{name}`"))?;
                Some(argument)
            }
            None => None,
        };
        let constant = operand.is_constant() && argument.as_ref().is_none_or(Checked::is_constant);
        let kind = NodeKind::Call {
            function: signature.function,
            operand: operand.boxed(),
            argument: argument.map(Checked::boxed),
        };
        self.operation(parsed, constant, kind, Type::of_kind(signature.result))
    }

    fn part(
        &mut self,
        parsed: &IdedExpr,
        name: &str,
        part: Part,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> Result<Checked> {
        let usage = format!("`{name}` is called as x.{name}() or x.{name}('+01:00')");
        let (operand, zone) = match (target, arguments) {
            (Some(operand), []) => (operand, None),
            (Some(operand), [zone]) => (operand, Some(zone)),
            _ => return self.problem(parsed, usage),
        };
        let zone = match zone.map(|zone| (&zone.expr, zone)) {
            None => None,
            Some((Expr::Literal(LiteralValue::String(text)), zone)) => {
                self.nodes += 1;
                match parse_offset(text.inner()) {
                    Some(offset) => Some(offset),
                    None => return self.problem(zone, "a zone is UTC or a fixed distance from it, such as '+01:00'"),
                }
            }
            Some((_, zone)) => return self.problem(zone, "a zone has to be a literal string"),
        };
        let operand = self.check(operand)?;
        let kinds: &[Kind] =
            if part.of_span() && zone.is_none() { &[Kind::Timestamp, Kind::Duration] } else { &[Kind::Timestamp] };
        self.expect(parsed, &operand, kinds, &format!("`{name}`"))?;
        let constant = operand.is_constant();
        self.operation(parsed, constant, NodeKind::Part { part, operand: operand.boxed(), zone }, Type::Of(Kind::Int))
    }

    fn list(&mut self, parsed: &IdedExpr, list: &ListExpr) -> Result<Checked> {
        if !list.optional_indices.is_empty() {
            return self.problem(parsed, "optional elements are not available");
        }
        let elements = list.elements.iter().map(|element| self.check(element)).collect::<Result<Vec<_>>>()?;
        let constant = elements.iter().all(Checked::is_constant);
        let of = elements
            .iter()
            .map(|element| element.of.clone())
            .reduce(|left, right| left.or(&right))
            .unwrap_or(Type::Any);
        let elements = elements.into_iter().map(|element| element.node).collect();
        self.operation(parsed, constant, NodeKind::List(elements), Type::List(Box::new(of)))
    }

    fn map(&mut self, parsed: &IdedExpr, map: &MapExpr) -> Result<Checked> {
        let mut members: Vec<(Box<str>, Node)> = Vec::with_capacity(map.entries.len());
        let mut constant = true;
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return self.problem(parsed, "this part was not understood");
            };
            let Expr::Literal(LiteralValue::String(key)) = &entry.key.expr else {
                return self.problem(&entry.key, "the keys of a map have to be literal strings");
            };
            if entry.optional {
                return self.problem(&entry.key, "optional entries are not available");
            }
            let key: Box<str> = key.inner().into();
            if members.iter().any(|(other, _)| *other == key) {
                return self.problem(&entry.key, "this key stands twice");
            }
            let value = self.check(&entry.value)?;
            constant &= value.is_constant();
            members.push((key, value.node));
        }
        self.operation(parsed, constant, NodeKind::Map(members), Type::Of(Kind::Map))
    }
}

impl Checked {
    fn is_constant(&self) -> bool {
        matches!(self.node.kind, NodeKind::Constant(_))
    }

    fn boxed(self) -> Box<Node> {
        Box::new(self.node)
    }
}

impl Variable {
    const NAMES: &'static str = "args, principal, agent, conversation, account, action, scope, tags and now";

    fn named(name: &str) -> Option<(Self, Type)> {
        let text = Type::Of(Kind::String);
        Some(match name {
            "args" => (Self::Arguments, Type::Of(Kind::Map)),
            "principal" => (Self::Principal, text),
            "agent" => (Self::Agent, text),
            "conversation" => (Self::Conversation, text),
            "account" => (Self::Account, text),
            "action" => (Self::Action, text),
            "scope" => (Self::Scope, text),
            "tags" => (Self::Tags, Type::List(Box::new(text))),
            "now" => (Self::Now, Type::Of(Kind::Timestamp)),
            _ => return None,
        })
    }
}

/// `all`, `exists`, `exists_one` (also `existsOne`), `filter` and `map`.
fn fold_named(name: &str) -> Option<FoldKind> {
    match name {
        names::ALL => Some(FoldKind::All),
        names::EXISTS => Some(FoldKind::Exists),
        names::EXISTS_ONE | "existsOne" => Some(FoldKind::ExistsOne),
        names::FILTER => Some(FoldKind::Filter),
        names::MAP => Some(FoldKind::Map),
        _ => None,
    }
}

fn usage(signature: &Signature) -> String {
    let name = signature.name;
    match (signature.style, signature.argument) {
        (Style::Global, _) => format!("{name}(x)"),
        (Style::Member, Some(_)) => format!("x.{name}(y)"),
        (Style::Member, None) => format!("x.{name}()"),
        (Style::Both, _) => format!("x.{name}() or {name}(x)"),
    }
}

fn unknown_function(name: &str) -> String {
    let functions = SIGNATURES.iter().map(|signature| signature.name).collect::<Vec<_>>().join(", ");
    format!(
        "there is no function `{name}`: there are has, all, exists, exists_one, filter, map, matches, {functions} and \
         the parts of a time (getHours and so on)"
    )
}
