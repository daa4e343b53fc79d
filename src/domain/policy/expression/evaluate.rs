//! Evaluates a checked expression over borrowed facts, within a budget.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what is not defined for a type is a type error, whichever type it is"
)]

use std::cmp::Ordering;

use super::facts::Facts;
use super::functions::{self, Function, Part};
use super::limits::MAX_ELEMENTS;
use super::pattern::Pattern;
use super::problem::{Fault, Reason};
use super::times::Offset;
use super::value::{Item, List, Map, Meter, Text, Value};

/// A node of a checked expression.
pub(super) struct Node {
    /// The byte of the source that it begins at, or at which its operator stands.
    pub offset: usize,
    pub kind: NodeKind,
}

pub(super) enum NodeKind {
    Constant(Value<'static>),
    Variable(Variable),
    /// The variable of the comprehension around it; they do not nest, so there is one at most.
    Element,
    Member {
        operand: Box<Node>,
        name: Box<str>,
    },
    Has {
        operand: Box<Node>,
        name: Box<str>,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
    },
    Not(Box<Node>),
    Negate(Box<Node>),
    /// `||` and `&&`: the value that decides alone, whatever stands on the other side.
    Logic {
        decisive: bool,
        left: Box<Node>,
        right: Box<Node>,
    },
    Choice {
        condition: Box<Node>,
        then: Box<Node>,
        otherwise: Box<Node>,
    },
    Equality {
        equal: bool,
        left: Box<Node>,
        right: Box<Node>,
    },
    Order {
        order: Order,
        left: Box<Node>,
        right: Box<Node>,
    },
    In {
        element: Box<Node>,
        container: Box<Node>,
    },
    Arithmetic {
        operator: Arithmetic,
        left: Box<Node>,
        right: Box<Node>,
    },
    Call {
        function: Function,
        operand: Box<Node>,
        argument: Option<Box<Node>>,
    },
    Part {
        part: Part,
        operand: Box<Node>,
        zone: Option<Offset>,
    },
    Matches {
        operand: Box<Node>,
        pattern: Pattern,
    },
    List(Vec<Node>),
    Map(Vec<(Box<str>, Node)>),
    Comprehension {
        fold: FoldKind,
        range: Box<Node>,
        body: Box<Node>,
        transform: Option<Box<Node>>,
    },
}

/// What an expression may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    Arguments,
    Principal,
    Agent,
    Conversation,
    Account,
    Action,
    Scope,
    Tags,
    Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// What a comprehension makes of its body's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    /// With a transform: of the elements for which the body is true. Without: the body is the transform.
    Map,
}

pub(super) struct Evaluator<'a, 'm> {
    /// Absent while constants are folded at load.
    facts: Option<&'a Facts<'a>>,
    element: Option<Item<'a>>,
    meter: &'m mut Meter,
}

type Outcome<'a> = Result<Value<'a>, Fault>;

impl<'a, 'm> Evaluator<'a, 'm> {
    pub fn new(facts: Option<&'a Facts<'a>>, meter: &'m mut Meter) -> Self {
        Self { facts, element: None, meter }
    }

    /// # Errors
    /// Whatever keeps the expression from having a value, and where.
    pub fn evaluate(&mut self, node: &'a Node) -> Outcome<'a> {
        let at = |reason| Fault { reason, offset: node.offset };
        self.meter.spend(1).map_err(at)?;
        match &node.kind {
            NodeKind::Constant(Value::Text(text)) => Ok(Value::Text(Text::Borrowed(text))),
            NodeKind::Constant(value) => Ok(value.clone()),
            NodeKind::Variable(variable) => self.variable(*variable).map_err(at),
            NodeKind::Element => self.element.as_ref().ok_or(Reason::Internal).and_then(Item::read).map_err(at),
            NodeKind::Member { operand, name } => {
                let operand = self.evaluate(operand)?;
                self.member(&operand, name)
                    .map_err(at)?
                    .ok_or(Reason::MissingMember)
                    .and_then(|item| item.read())
                    .map_err(at)
            }
            NodeKind::Has { operand, name } => {
                let operand = self.evaluate(operand)?;
                self.member(&operand, name).map_err(at).map(|item| Value::Bool(item.is_some()))
            }
            NodeKind::Index { operand, index } => {
                let operand = self.evaluate(operand)?;
                let index = self.evaluate(index)?;
                self.index(&operand, &index).map_err(at)
            }
            NodeKind::Not(operand) => Ok(Value::Bool(!self.truth(operand)?)),
            NodeKind::Negate(operand) => negate(&self.evaluate(operand)?).map_err(at),
            NodeKind::Logic { decisive, left, right } => self.logic(*decisive, left, right).map(Value::Bool),
            NodeKind::Choice { condition, then, otherwise } => {
                let chosen = if self.truth(condition)? { then } else { otherwise };
                self.evaluate(chosen)
            }
            NodeKind::Equality { equal, left, right } => {
                let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
                let are_equal = left.equals(&right, self.meter).map_err(at)?;
                Ok(Value::Bool(are_equal == *equal))
            }
            NodeKind::Order { order, left, right } => {
                let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
                let ordering = left.compare(&right, self.meter).map_err(at)?;
                Ok(Value::Bool(order.holds(ordering)))
            }
            NodeKind::In { element, container } => {
                let (element, container) = (self.evaluate(element)?, self.evaluate(container)?);
                self.is_in(&element, &container).map(Value::Bool).map_err(at)
            }
            NodeKind::Arithmetic { operator, left, right } => {
                let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
                arithmetic(*operator, &left, &right, self.meter).map_err(at)
            }
            NodeKind::Call { function, operand, argument } => {
                let operand = self.evaluate(operand)?;
                let argument = argument.as_ref().map(|argument| self.evaluate(argument)).transpose()?;
                functions::call(*function, &operand, argument.as_ref(), self.meter).map_err(at)
            }
            NodeKind::Part { part, operand, zone } => {
                functions::part(*part, &self.evaluate(operand)?, *zone).map_err(at)
            }
            NodeKind::Matches { operand, pattern } => {
                let Value::Text(text) = self.evaluate(operand)? else {
                    return Err(at(Reason::WrongType));
                };
                pattern.is_found_in(&text, self.meter).map(Value::Bool).map_err(at)
            }
            NodeKind::List(elements) => {
                let elements = elements.iter().map(|element| self.evaluate(element)).collect::<Result<Vec<_>, _>>()?;
                Ok(Value::List(List::Built(elements.into())))
            }
            NodeKind::Map(members) => {
                let entry = |(name, value): &'a (Box<str>, Node)| Ok((Text::Borrowed(name), self.evaluate(value)?));
                let members = members.iter().map(entry).collect::<Result<Vec<_>, Fault>>()?;
                Ok(Value::Map(Map::Built(members.into())))
            }
            NodeKind::Comprehension { fold, range, body, transform } => {
                let range = self.evaluate(range)?;
                let result = self.comprehension(*fold, &range, body, transform.as_deref(), node);
                self.element = None;
                result
            }
        }
    }

    /// A node that has to be a bool.
    fn truth(&mut self, node: &'a Node) -> Result<bool, Fault> {
        match self.evaluate(node)? {
            Value::Bool(value) => Ok(value),
            _ => Err(Fault { reason: Reason::WrongType, offset: node.offset }),
        }
    }

    fn variable(&self, variable: Variable) -> Result<Value<'a>, Reason> {
        let facts = self.facts.ok_or(Reason::Internal)?;
        let text = |text: &'a str| Ok(Value::Text(Text::Borrowed(text)));
        match variable {
            Variable::Arguments => Value::read(facts.args),
            Variable::Principal => text(facts.principal),
            Variable::Agent => text(facts.agent),
            Variable::Conversation => text(facts.conversation),
            Variable::Account => text(facts.account),
            Variable::Action => text(facts.action),
            Variable::Scope => text(facts.scope),
            Variable::Tags => Ok(Value::List(List::Strings(facts.tags))),
            Variable::Now => facts.now.map(Value::Instant).ok_or(Reason::Overflow),
        }
    }

    fn member(&mut self, operand: &Value<'a>, name: &str) -> Result<Option<Item<'a>>, Reason> {
        match operand {
            Value::Map(map) => map.get(name, self.meter),
            _ => Err(Reason::WrongType),
        }
    }

    fn index(&mut self, operand: &Value<'a>, index: &Value<'a>) -> Result<Value<'a>, Reason> {
        match (operand, index) {
            (Value::List(list), Value::Int(index)) => {
                let index = usize::try_from(*index).map_err(|_| Reason::IndexOutOfRange)?;
                list.get(index).ok_or(Reason::IndexOutOfRange)?.read()
            }
            (Value::Map(_), Value::Text(name)) => self.member(operand, name)?.ok_or(Reason::MissingMember)?.read(),
            _ => Err(Reason::WrongType),
        }
    }

    /// As CEL has it: the value that decides alone does so whatever the other side is, also in error. A limit that was
    /// hit is passed over by nothing.
    fn logic(&mut self, decisive: bool, left: &'a Node, right: &'a Node) -> Result<bool, Fault> {
        let left = self.truth(left);
        match left {
            Ok(value) if value == decisive => return Ok(decisive),
            Err(fault) if fault.reason.is_final() => return Err(fault),
            Ok(_) | Err(_) => {}
        }
        match (left, self.truth(right)) {
            (_, Err(fault)) if fault.reason.is_final() => Err(fault),
            (_, Ok(value)) if value == decisive => Ok(decisive),
            (Err(fault), _) | (Ok(_), Err(fault)) => Err(fault),
            (Ok(_), Ok(_)) => Ok(!decisive),
        }
    }

    /// An element of a list, or a key of a map.
    fn is_in(&mut self, element: &Value<'a>, container: &Value<'a>) -> Result<bool, Reason> {
        match (container, element) {
            (Value::List(list), element) => list.contains(element, self.meter),
            (Value::Map(map), Value::Text(name)) => Ok(map.get(name, self.meter)?.is_some()),
            _ => Err(Reason::WrongType),
        }
    }

    fn comprehension(
        &mut self,
        fold: FoldKind,
        range: &Value<'a>,
        body: &'a Node,
        transform: Option<&'a Node>,
        node: &'a Node,
    ) -> Outcome<'a> {
        let at = |reason| Fault { reason, offset: node.offset };
        let size = match range {
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            _ => return Err(at(Reason::WrongType)),
        };
        if size > MAX_ELEMENTS {
            return Err(at(Reason::TooManyElements));
        }
        let mut run = Run { fold, found: 0, built: Vec::new(), passed_over: None };
        for index in 0..size {
            self.element = match range {
                Value::List(list) => list.get(index),
                Value::Map(map) => map.entry(index).map(|(name, _)| Item::Ready(Value::Text(name))),
                _ => None,
            };
            if let Some(decided) = self.turn(&mut run, body, transform)? {
                return Ok(Value::Bool(decided));
            }
        }
        run.result()
    }

    /// One element's turn: the result of the comprehension, where this element decides it.
    fn turn(&mut self, run: &mut Run<'a>, body: &'a Node, transform: Option<&'a Node>) -> Result<Option<bool>, Fault> {
        match run.fold {
            FoldKind::All | FoldKind::Exists => {
                let decisive = run.fold == FoldKind::Exists;
                match self.truth(body) {
                    Ok(value) if value == decisive => return Ok(Some(decisive)),
                    Ok(_) => {}
                    Err(fault) if fault.reason.is_final() => return Err(fault),
                    Err(fault) => run.passed_over = run.passed_over.or(Some(fault)),
                }
            }
            FoldKind::ExistsOne => run.found += usize::from(self.truth(body)?),
            FoldKind::Filter => {
                if self.truth(body)? {
                    let element = self.element.as_ref().ok_or(Reason::Internal).and_then(Item::read);
                    run.built.push(element.map_err(|reason| Fault { reason, offset: body.offset })?);
                }
            }
            FoldKind::Map => match transform {
                Some(transform) => {
                    if self.truth(body)? {
                        run.built.push(self.evaluate(transform)?);
                    }
                }
                None => run.built.push(self.evaluate(body)?),
            },
        }
        Ok(None)
    }
}

/// What a comprehension knows between two elements.
struct Run<'a> {
    fold: FoldKind,
    found: usize,
    built: Vec<Value<'a>>,
    /// The first error of `all` and `exists`, which a later element may still decide.
    passed_over: Option<Fault>,
}

impl<'a> Run<'a> {
    fn result(self) -> Outcome<'a> {
        match (self.fold, self.passed_over) {
            (_, Some(fault)) => Err(fault),
            (FoldKind::All, None) => Ok(Value::Bool(true)),
            (FoldKind::Exists, None) => Ok(Value::Bool(false)),
            (FoldKind::ExistsOne, None) => Ok(Value::Bool(self.found == 1)),
            (FoldKind::Filter | FoldKind::Map, None) => Ok(Value::List(List::Built(self.built.into()))),
        }
    }
}

impl Order {
    const fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

fn negate<'a>(operand: &Value<'a>) -> Result<Value<'a>, Reason> {
    match operand {
        Value::Int(int) => int.checked_neg().map(Value::Int).ok_or(Reason::Overflow),
        Value::Double(double) => Ok(Value::Double(-double)),
        _ => Err(Reason::WrongType),
    }
}

/// Numbers of one type; strings and lists are joined; times and spans as CEL combines them.
fn arithmetic<'a>(
    operator: Arithmetic,
    left: &Value<'a>,
    right: &Value<'a>,
    meter: &mut Meter,
) -> Result<Value<'a>, Reason> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => on_ints(operator, *left, *right).map(Value::Int),
        (Value::Double(left), Value::Double(right)) => on_doubles(operator, *left, *right),
        (Value::Text(left), Value::Text(right)) if operator == Arithmetic::Add => {
            functions::concatenate(left, right, meter)
        }
        (Value::List(left), Value::List(right)) if operator == Arithmetic::Add => {
            let size = left.len().saturating_add(right.len());
            if size > MAX_ELEMENTS {
                return Err(Reason::TooManyElements);
            }
            meter.spend_length(size, 1)?;
            let joined = left.items().chain(right.items()).map(|item| item.read()).collect::<Result<Vec<_>, _>>()?;
            Ok(Value::List(List::Built(joined.into())))
        }
        _ => on_times(operator, left, right),
    }
}

fn on_ints(operator: Arithmetic, left: i64, right: i64) -> Result<i64, Reason> {
    if right == 0 && matches!(operator, Arithmetic::Divide | Arithmetic::Remainder) {
        return Err(Reason::DivisionByZero);
    }
    let result = match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide => left.checked_div(right),
        Arithmetic::Remainder => left.checked_rem(right),
    };
    result.ok_or(Reason::Overflow)
}

/// Where IEEE 754 would answer infinity or not-a-number, this is an error.
fn on_doubles<'a>(operator: Arithmetic, left: f64, right: f64) -> Result<Value<'a>, Reason> {
    match operator {
        Arithmetic::Add => Value::double(left + right),
        Arithmetic::Subtract => Value::double(left - right),
        Arithmetic::Multiply => Value::double(left * right),
        Arithmetic::Divide if right == 0.0 => Err(Reason::DivisionByZero),
        Arithmetic::Divide => Value::double(left / right),
        Arithmetic::Remainder => Err(Reason::WrongType),
    }
}

fn on_times<'a>(operator: Arithmetic, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Reason> {
    use super::times::Instant;
    let instant = |since_epoch: Option<jiff::SignedDuration>| {
        since_epoch.and_then(Instant::new).map(Value::Instant).ok_or(Reason::Overflow)
    };
    let span = |span: Option<jiff::SignedDuration>| {
        // CEL's durations are 64 bits of nanoseconds.
        span.filter(|span| i64::try_from(span.as_nanos()).is_ok()).map(Value::Span).ok_or(Reason::Overflow)
    };
    match (operator, left, right) {
        (Arithmetic::Add, Value::Instant(time), Value::Span(by))
        | (Arithmetic::Add, Value::Span(by), Value::Instant(time)) => instant(time.since_epoch().checked_add(*by)),
        (Arithmetic::Subtract, Value::Instant(time), Value::Span(by)) => instant(time.since_epoch().checked_sub(*by)),
        (Arithmetic::Subtract, Value::Instant(later), Value::Instant(earlier)) => {
            span(later.since_epoch().checked_sub(earlier.since_epoch()))
        }
        (Arithmetic::Add, Value::Span(left), Value::Span(right)) => span(left.checked_add(*right)),
        (Arithmetic::Subtract, Value::Span(left), Value::Span(right)) => span(left.checked_sub(*right)),
        _ => Err(Reason::WrongType),
    }
}
