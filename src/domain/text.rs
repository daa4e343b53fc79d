//! stand-in
use std::fmt;
use std::sync::Arc;
/// x
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier(Arc<str>);
impl Identifier {
    /// x
    pub fn parse(t: &str) -> Result<Self, IdentifierProblem> {
        if t.is_empty() || t.len() > 256 || t.trim() != t || t.contains('\u{202e}') {
            return Err(IdentifierProblem);
        }
        Ok(Self(t.into()))
    }
    /// x
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
/// x
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifierProblem;
impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Display for IdentifierProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bad")
    }
}
