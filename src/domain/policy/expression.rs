//! Stand-in.
use crate::domain::json::Json;
use crate::domain::time::Timestamp;
use std::fmt;
/// x
#[derive(Debug)]
pub struct Expression(String);
/// x
#[derive(Debug)]
pub struct ExpressionProblem;
/// x
#[derive(Debug)]
pub struct EvaluationError;
impl fmt::Display for ExpressionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stand-in")
    }
}
impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stand-in")
    }
}
/// x
#[derive(Debug)]
pub struct Facts;
/// x
pub struct FactsInput<'a> {
    /// x
    pub args: &'a Json,
    /// x
    pub principal: &'a str,
    /// x
    pub agent: &'a str,
    /// x
    pub conversation: Option<&'a str>,
    /// x
    pub account: Option<&'a str>,
    /// x
    pub action: &'a str,
    /// x
    pub scope: &'a str,
    /// x
    pub tags: &'a [String],
    /// x
    pub now: Timestamp,
}
impl Facts {
    /// x
    pub fn new(_: FactsInput<'_>) -> Self {
        Self
    }
}
impl Expression {
    /// x
    pub fn compile(text: &str) -> Result<Self, ExpressionProblem> {
        if text.contains("bad") { Err(ExpressionProblem) } else { Ok(Self(text.into())) }
    }
    /// x
    pub fn matches(&self, _: &Facts) -> Result<bool, EvaluationError> {
        match self.0.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(EvaluationError),
        }
    }
}
