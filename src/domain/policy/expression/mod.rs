//! The `when` of a rule: CEL over what a request says of itself.
//!
//! The `cel` crate parses; `check` refuses at load whatever can be told to be wrong there, and makes a tree of our own;
//! `evaluate` walks it over the borrowed request. That crate's interpreter is not used, since four promises cannot be
//! kept with it: an exact number that no double is must be an error also to `==`, an `int` and a `double` must compare
//! exactly, an evaluation must have a budget, and no value of a request may end up in an error.
//!
//! # What there is
//!
//! - Variables: `args` (map), `principal`, `agent`, `conversation`, `account`, `action`, `scope` (strings), `tags` (list
//!   of strings), `now` (timestamp). Nothing else is declared.
//! - Values: `null`, `bool`, `int`, `double`, `string`, `list`, `map` with string keys, `timestamp`, `duration`. There
//!   are no `uint` and no `bytes`, since arguments never are.
//! - Operators: `?:`, `||`, `&&`, `!`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `+`, `-`, `*`, `/`, `%`, `.name`, `[…]`.
//! - Functions: `has(x.name)`; `all`, `exists`, `exists_one`, `filter`, `map`, which do not nest; `size`, `contains`,
//!   `startsWith`, `endsWith`, `matches`; `int`, `double`, `string`, `timestamp`, `duration`; `getFullYear`, `getMonth`,
//!   `getDate`, `getDayOfMonth`, `getDayOfWeek`, `getDayOfYear`, `getHours`, `getMinutes`, `getSeconds`,
//!   `getMilliseconds`, in UTC or at a literal distance from it (`now.getHours('+01:00')`).
//!
//! # Where it is stricter than CEL
//!
//! A rule in error counts as matching, so an error is always the safe answer.
//!
//! - A number that is neither a signed 64-bit integer nor exactly what its double would be written as is an error to
//!   whatever reads it, equality included. `has`, `size` and `in` over keys do not read it.
//! - Doubles are finite: where IEEE 754 would answer infinity or not-a-number, there is an error.
//! - `||`, `&&`, `exists` and `all` pass over an error where the other side alone decides (`true || error` is true,
//!   `false && error` is false, in either order), as CEL has it, but never over a limit that was hit.
//! - `in` reads a list up to the element that it finds; `==` reads lists of one length, and the members that maps of one
//!   size have in common, to the end.
//! - Comparing types that can be told at load to differ is refused there. At run time, `==`, `!=` and `in` between two
//!   kinds of value are an error, also between elements of lists and members of maps that are compared; CEL says that
//!   they are not equal. A rule that denies `args.to == 'x'` would otherwise let `["x"]` pass. `int` and `double` are
//!   one kind. `null` differs from every other value without an error, since comparing with it is how absence is asked.
//!   `in` passes over an element of another kind where another is equal; no key of a map is anything but a string.
//! - `\d`, `\w`, `\s` and `\b` in `matches` are ASCII, as in RE2. There is no case folding (but for `(?i)` in a pattern)
//!   and no Unicode normalisation anywhere.

mod check;
mod evaluate;
mod facts;
mod functions;
pub mod limits;
mod pattern;
mod problem;
mod scan;
mod times;
mod types;
mod value;

#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use cel::Env;

pub use facts::{Facts, FactsInput};
pub use problem::{EvaluationError, ExpressionProblem, Place, Reason};
pub use value::Meter;

use evaluate::{Evaluator, Node};
use limits::{MAX_PARSER_DEPTH, PARSER_STACK_BYTES};
use problem::Fault;
use value::Value;

/// A compiled `when`. A copy shares what was compiled; two are equal where their texts are.
#[derive(Clone)]
pub struct Expression {
    source: Arc<str>,
    root: Arc<Node>,
}

impl Expression {
    /// Compiles an expression, on a thread of its own: for the load of a policy, never for a request.
    ///
    /// # Errors
    /// What is wrong with it, and where: too long, too deep, not CEL, a name or function that is not there, a type that
    /// does not fit, a constant without a value, a result that is not a bool.
    pub fn compile(source: &str) -> Result<Self, ExpressionProblem> {
        scan::scan(source)?;
        let owned = source.to_owned();
        let parsing = thread::Builder::new()
            .name("expression".to_owned())
            .stack_size(PARSER_STACK_BYTES)
            .spawn(move || parse_and_check(&owned))
            .map_err(|error| ExpressionProblem::whole(format!("no thread to compile it on: {error}")))?;
        let root = parsing.join().unwrap_or_else(|_| Err(ExpressionProblem::whole("the parser failed on it")))?;
        Ok(Self { source: source.into(), root: Arc::new(root) })
    }

    /// The text that it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether these facts match. The cost is taken from `meter`, which all expressions of one call share: once it has run
    /// out, whatever else would be evaluated has no answer.
    ///
    /// # Errors
    /// Why there is no answer, without anything of the request. **The rule then counts as matching.**
    pub fn matches(&self, facts: &Facts<'_>, meter: &mut Meter) -> Result<bool, EvaluationError> {
        let evaluated = catch_unwind(AssertUnwindSafe(|| self.evaluate(facts, meter)));
        match evaluated {
            Ok(Ok(matches)) => Ok(matches),
            Ok(Err(Fault { reason, offset })) => {
                Err(EvaluationError { reason, place: Some(Place::of(&self.source, offset)) })
            }
            Err(_) => Err(EvaluationError { reason: Reason::Internal, place: None }),
        }
    }

    fn evaluate(&self, facts: &Facts<'_>, meter: &mut Meter) -> Result<bool, Fault> {
        let value = Evaluator::new(Some(facts), meter).evaluate(&self.root)?;
        let Value::Bool(matches) = value else {
            return Err(Fault { reason: Reason::NotBool, offset: self.root.offset });
        };
        Ok(matches)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Expression").field(&self.source).finish()
    }
}

/// The whole life of a parsed tree, so that also dropping it has the large stack.
fn parse_and_check(source: &str) -> Result<Node, ExpressionProblem> {
    // Without macros: `check` sees `exists` and its like as they are written.
    let parser = Env::default().parser().max_recursion_depth(MAX_PARSER_DEPTH);
    let (parsed, positions) = parser.parse_with_source_info(source).map_err(|errors| {
        let Some(first) = errors.errors.first() else {
            return ExpressionProblem::whole("this is not an expression");
        };
        let message = in_words(&first.msg);
        match (usize::try_from(first.pos.0), usize::try_from(first.pos.1)) {
            (Ok(line @ 1..), Ok(column @ 1..)) => ExpressionProblem::at(Place { line, column }, message),
            _ => ExpressionProblem::whole(message),
        }
    })?;
    check::check(&parsed, &positions)
}

/// The parser's message, without the list of everything that would have fitted.
fn in_words(message: &str) -> String {
    let message = message.trim_start_matches("Syntax error: ");
    let message = message.split_once(" expecting {").map_or(message, |(before, _)| before);
    if message.contains("'<EOF>'") {
        "the expression ends too early".to_owned()
    } else if message.starts_with("Incomplete") {
        "this part is not complete".to_owned()
    } else {
        message.replace("mismatched input", "unexpected").replace("extraneous input", "unexpected")
    }
}
