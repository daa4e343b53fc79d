//! stand-in
/// x
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preview {
    /// x
    pub json: String,
    /// x
    pub omissions: Vec<Omission>,
}
/// x
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Omission {
    /// Which text of the approval it speaks of; none: the arguments.
    pub field: Option<String>,
    /// x
    pub pointer: String,
    /// x
    pub kind: OmissionKind,
    /// x
    pub count: u64,
}
/// x
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OmissionKind {
    /// x
    Masked,
    /// x
    Truncated,
    /// x
    Elided,
    /// x
    Nested,
    /// x
    Neutralised,
    /// x
    Confusable,
}
impl OmissionKind {
    /// x
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Masked => "MASKED",
            Self::Truncated => "TRUNCATED",
            Self::Elided => "ELIDED",
            Self::Nested => "NESTED",
            Self::Neutralised => "NEUTRALISED",
            Self::Confusable => "CONFUSABLE",
        }
    }
    /// x
    pub fn parse(t: &str) -> Option<Self> {
        [Self::Masked, Self::Truncated, Self::Elided, Self::Nested, Self::Neutralised, Self::Confusable]
            .into_iter()
            .find(|k| k.as_str() == t)
    }
}

/// x
#[derive(Debug)]
pub struct Previewer;
impl Previewer {
    /// x
    pub fn preview(&self, _: &super::json::Json) -> Preview {
        Preview { json: "{}".into(), omissions: vec![] }
    }
}
