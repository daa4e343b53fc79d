//! What a person is shown of an action's arguments: masked, bounded, and honest about what it leaves out.
//!
//! A preview is structure: a JSON value that has the shape of the arguments, and beside it the list of what was left
//! out of it. Where a value is masked or nested too deep, `null` stands in the preview; where a part of a string is a
//! credential, [`MASK`] stands for it, which no argument can contain, since there it would be escaped. Arrays, objects
//! and strings that are too long end early. Every such place is in the list, so nothing is left out in silence: what
//! the list has no room for is left out of the preview and counted.
//!
//! The room of the preview and of the list is shared out from the top: members of an object, and items of an array,
//! get equal shares, and what one does not need the others share. So no part of the arguments, however large, and
//! wherever it stands, can push out another.
//!
//! Masking comes before everything else and always wins. The same arguments give the same preview.

mod config;
mod credentials;
mod names;
mod plan;
mod render;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use config::{PreviewConfig, PreviewProblem};

use super::json::Json;
use names::SensitiveNames;
use render::Render;

/// What stands in a string for a credential in it. Its length says nothing.
pub const MASK: &str = "████";

/// The character of [`MASK`].
const MASK_CHARACTER: char = '█';

/// The most omissions of one preview.
pub const MAX_OMISSIONS: usize = 200;

/// What an omission takes of the room for them at least, in bytes of its pointer. A longer pointer takes more.
const NOTE_BYTES: usize = 82;

/// The room for omissions: so their number is bounded, and so are the bytes of all their pointers.
const NOTES_ROOM: usize = MAX_OMISSIONS * NOTE_BYTES;

/// What an omission with a pointer of that length takes of [`NOTES_ROOM`].
const fn note_cost(pointer: usize) -> usize {
    if pointer > NOTE_BYTES { pointer } else { NOTE_BYTES }
}

/// Arguments as a person is shown them.
#[derive(Clone, PartialEq, Eq)]
pub struct Preview {
    /// A JSON text, at most [`PreviewConfig::max_total_bytes`] long, without any hidden character. Members stand in the
    /// canonical order of the arguments.
    pub json: String,
    /// What the text leaves out or changes.
    pub omissions: Vec<Omission>,
}

/// Shows sizes alone: what is left of the arguments is still the principal's data.
impl fmt::Debug for Preview {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Preview({} bytes, {} omissions)", self.json.len(), self.omissions.len())
    }
}

/// Something that a preview leaves out or changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omission {
    /// Which text of the approval it speaks of, beside the preview; none: the preview.
    pub field: Option<String>,
    /// The JSON Pointer (RFC 6901) of the place *in the preview*. What concerns a member's name stands at that member.
    /// One kind of place is not there: a member of the outermost object that is left out is named by its own pointer,
    /// with [`OmissionKind::Elided`] and the count 1.
    pub pointer: String,
    /// What was done.
    pub kind: OmissionKind,
    /// How much; [`OmissionKind`] says of what. Of what is masked nothing is told: 0.
    pub count: u64,
}

/// What a preview does to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OmissionKind {
    /// The value, or a part of the string, is or may be a secret.
    Masked,
    /// A string, or a member's name, ends early; counted are the characters (Unicode scalar values) left out.
    Truncated,
    /// Items of an array, or members of an object, are left out; counted are those that are not named by an omission
    /// of their own.
    Elided,
    /// An array or object stands too deep; counted are its items or members.
    Nested,
    /// Characters that cannot be seen became escapes; counted are these characters.
    Neutralised,
    /// Words may not be what they look like: they mix Latin letters with Cyrillic or Greek ones, or are written like an
    /// address with letters or signs that can be taken for others. Counted are these words, among those that are shown.
    Confusable,
}

impl OmissionKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Masked, Self::Truncated, Self::Elided, Self::Nested, Self::Neutralised, Self::Confusable];

    /// Its name, as it is stored and sent.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Masked => "MASKED",
            Self::Truncated => "TRUNCATED",
            Self::Elided => "ELIDED",
            Self::Nested => "NESTED",
            Self::Neutralised => "NEUTRALISED",
            Self::Confusable => "CONFUSABLE",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Makes previews by one configuration.
#[derive(Debug, Clone)]
pub struct Previewer {
    config: PreviewConfig,
    names: SensitiveNames,
}

impl Previewer {
    /// A previewer by `config`, or everything that is wrong with it.
    pub fn new(config: PreviewConfig) -> Result<Self, Vec<PreviewProblem>> {
        let problems = config.validate();
        if problems.is_empty() { Ok(Self::compile(config)) } else { Err(problems) }
    }

    /// The preview of arguments, in time linear in their size.
    pub fn preview(&self, arguments: &Json) -> Preview {
        Render::preview(&self.config, &self.names, arguments)
    }

    fn compile(config: PreviewConfig) -> Self {
        let names = SensitiveNames::new(&config);
        Self { config, names }
    }
}

impl Default for Previewer {
    fn default() -> Self {
        Self::compile(PreviewConfig::default())
    }
}

#[cfg(test)]
mod fairness;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
