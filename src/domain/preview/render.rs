//! The walk over the arguments that writes the preview.

use std::borrow::Cow;
use std::collections::HashMap;

use unicode_segmentation::UnicodeSegmentation;

use crate::domain::canonical::push_string;
use crate::domain::json::Json;
use crate::domain::text::{LineBreaks, confusable_words, neutralise};

use super::names::SensitiveNames;
use super::{
    MASK, MASK_CHARACTER, MAX_OMISSIONS, MAX_POINTER_BYTES, Omission, OmissionKind, Preview, PreviewConfig, credentials,
};

/// The most graphemes of a member's name.
const MAX_NAME_GRAPHEMES: usize = 64;

/// The most bytes of a member's name, before escapes.
const MAX_NAME_BYTES: usize = 192;

/// One preview in the making.
///
/// Nothing is written that does not fit together with the brackets that still have to close: at every moment the text
/// and these brackets are within the limit. What does not fit ends the preview; whatever comes later is left out.
pub(super) struct Render<'p> {
    config: &'p PreviewConfig,
    names: &'p SensitiveNames,
    out: String,
    /// How many brackets are open.
    open: usize,
    /// Nothing more fits.
    full: bool,
    /// Where the walk is.
    pointer: String,
    omissions: Vec<Omission>,
    pointer_bytes: usize,
}

/// What was done to a text, by kind.
#[derive(Debug, Default, Clone, Copy)]
struct Changes {
    masked: bool,
    truncated: u64,
    neutralised: u64,
    confusable: u64,
}

impl<'p> Render<'p> {
    pub(super) fn new(config: &'p PreviewConfig, names: &'p SensitiveNames) -> Self {
        Self {
            config,
            names,
            out: String::new(),
            open: 0,
            full: false,
            pointer: String::new(),
            omissions: Vec::new(),
            pointer_bytes: 0,
        }
    }

    pub(super) fn preview(mut self, arguments: &Json) -> Preview {
        if !self.value(arguments, 0, Changes::default()) {
            self.out.push_str("null");
            self.omit(OmissionKind::Elided, 1);
        }
        Preview { json: self.out, omissions: self.omissions }
    }

    /// Writes a value that stands inside `depth` objects and arrays, and notes what was done to it and to its name.
    /// Whether it fitted; if not, nothing was written or noted.
    fn value(&mut self, value: &Json, depth: usize, of_name: Changes) -> bool {
        match value {
            Json::Null => self.scalar("null", of_name),
            Json::Bool(true) => self.scalar("true", of_name),
            Json::Bool(false) => self.scalar("false", of_name),
            Json::Number(number) => self.scalar(number.as_str(), of_name),
            Json::String(text) => self.string(text, of_name),
            Json::Array(items) => self.container(items.len(), depth, of_name, |this| this.array(items, depth + 1)),
            Json::Object(members) => {
                self.container(members.len(), depth, of_name, |this| this.object(members, depth + 1))
            }
        }
    }

    fn scalar(&mut self, text: &str, changes: Changes) -> bool {
        let fits = self.has_room(text.len()) && self.can_note(changes.kinds());
        if fits {
            self.out.push_str(text);
            self.note(changes);
        }
        fits
    }

    fn masked(&mut self, of_name: Changes) -> bool {
        self.scalar("null", Changes { masked: true, ..of_name })
    }

    fn string(&mut self, text: &str, of_name: Changes) -> bool {
        let limits = (self.config.max_string_graphemes, self.config.max_string_bytes);
        let Some((shown, changes)) = show(text, self.names, limits, LineBreaks::Keep) else {
            return self.masked(of_name);
        };
        let mut written = String::with_capacity(shown.len() + 2);
        push_string(&shown, &mut written);
        self.scalar(&written, changes.and(of_name))
    }

    fn container(&mut self, count: usize, depth: usize, of_name: Changes, write: impl FnOnce(&mut Self)) -> bool {
        let nested = count > 0 && depth >= self.config.max_depth;
        // One more omission can become necessary: what does not fit any more is counted where the container ends.
        if !(self.has_room(4) && self.can_note(of_name.kinds() + 1)) {
            return false;
        }
        self.note(of_name);
        if nested {
            self.out.push_str("null");
            self.omit(OmissionKind::Nested, count);
        } else {
            write(self);
        }
        true
    }

    fn array(&mut self, items: &[Json], depth: usize) {
        self.begin('[');
        let mut shown = 0;
        let pair = matches!(items, [Json::String(name), Json::String(_)] if self.names.is_sensitive_label(name));
        let mut after_flag = false;
        for (index, item) in items.iter().enumerate().take(self.config.max_array_items) {
            let before = self.mark(index > 0);
            self.pointer.push_str(&format!("/{index}"));
            let secret = after_flag || (pair && index == 1);
            let placed =
                if secret { self.masked(Changes::default()) } else { self.value(item, depth, Changes::default()) };
            after_flag = item.as_str().is_some_and(|text| is_flag(text) && self.names.is_sensitive_label(text));
            if !self.settle(placed, before) {
                break;
            }
            shown += 1;
            if self.full {
                break;
            }
        }
        self.end(']', items.len() - shown);
    }

    fn object(&mut self, members: &[(String, Json)], depth: usize) {
        self.begin('{');
        let mut shown = 0;
        let labels = self.names.sensitive_labels(members);
        let mut taken = HashMap::new();
        for (index, (name, value)) in members.iter().enumerate().take(self.config.max_object_members) {
            let before = self.mark(index > 0);
            let limits = (MAX_NAME_GRAPHEMES, MAX_NAME_BYTES);
            let (text, of_name) = match show(name, self.names, limits, LineBreaks::Escape) {
                Some((text, changes)) if !changes.masked => (text, changes),
                // A name that contains a credential is not shown, nor what it holds.
                _ => (MASK.to_owned(), Changes { masked: true, ..Changes::default() }),
            };
            let text = unique(&text, &mut taken);
            self.pointer.push('/');
            self.pointer.push_str(&text.replace('~', "~0").replace('/', "~1"));
            push_string(&text, &mut self.out);
            self.out.push(':');
            let secret = of_name.masked || self.names.is_sensitive(name) || labels.cover(name);
            let placed = if secret { self.masked(of_name) } else { self.value(value, depth, of_name) };
            if !self.settle(placed, before) {
                break;
            }
            shown += 1;
            if self.full {
                break;
            }
        }
        self.end('}', members.len() - shown);
    }

    fn begin(&mut self, bracket: char) {
        self.out.push(bracket);
        self.open += 1;
    }

    fn end(&mut self, bracket: char, left_out: usize) {
        self.open -= 1;
        self.out.push(bracket);
        if left_out > 0 {
            self.omit(OmissionKind::Elided, left_out);
        }
    }

    /// Where the text and the pointer stand before an item is tried.
    fn mark(&mut self, comma: bool) -> (usize, usize) {
        let mark = (self.out.len(), self.pointer.len());
        if comma {
            self.out.push(',');
        }
        mark
    }

    /// Goes back to the container after an item; if the item did not fit, it is as if it had not been tried, and the
    /// preview ends.
    fn settle(&mut self, placed: bool, (text, pointer): (usize, usize)) -> bool {
        self.pointer.truncate(pointer);
        if !placed {
            self.out.truncate(text);
            self.full = true;
        }
        placed
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.out.len() + bytes + self.open <= self.config.max_total_bytes
    }

    fn can_note(&self, count: usize) -> bool {
        count == 0
            || self.omissions.len() + count <= MAX_OMISSIONS
                && self.pointer_bytes + count * self.pointer.len() <= MAX_POINTER_BYTES
    }

    fn note(&mut self, changes: Changes) {
        for (kind, count, done) in changes.list() {
            if done {
                self.push_omission(kind, count);
            }
        }
    }

    fn omit(&mut self, kind: OmissionKind, count: usize) {
        self.push_omission(kind, u64::try_from(count).unwrap_or(u64::MAX));
    }

    fn push_omission(&mut self, kind: OmissionKind, count: u64) {
        self.pointer_bytes += self.pointer.len();
        self.omissions.push(Omission { pointer: self.pointer.clone(), kind, count });
    }
}

impl Changes {
    fn list(self) -> [(OmissionKind, u64, bool); 4] {
        [
            (OmissionKind::Masked, 0, self.masked),
            (OmissionKind::Truncated, self.truncated, self.truncated > 0),
            (OmissionKind::Neutralised, self.neutralised, self.neutralised > 0),
            (OmissionKind::Confusable, self.confusable, self.confusable > 0),
        ]
    }

    fn kinds(self) -> usize {
        self.list().iter().filter(|(_, _, done)| *done).count()
    }

    fn and(self, other: Self) -> Self {
        Self {
            masked: self.masked || other.masked,
            truncated: self.truncated + other.truncated,
            neutralised: self.neutralised + other.neutralised,
            confusable: self.confusable + other.confusable,
        }
    }
}

/// A text as it is shown: credentials first, then the cut, then what is hidden. None if it is a credential as a whole.
fn show(
    text: &str,
    names: &SensitiveNames,
    (max_graphemes, max_bytes): (usize, usize),
    line_breaks: LineBreaks,
) -> Option<(String, Changes)> {
    let spots = credentials::find(text, names);
    let mut escaped = 0;
    let mut masked: Cow<'_, str> = Cow::Borrowed(text);
    if !spots.is_empty() || text.contains(MASK_CHARACTER) {
        let mut parts = String::with_capacity(text.len());
        let mut from = 0;
        for spot in &spots {
            escaped += push_without_masks(text.get(from..spot.start).unwrap_or_default(), &mut parts);
            parts.push_str(MASK);
            from = spot.end;
        }
        if spots.first().is_some_and(|spot| spot.start == 0) && from == text.len() && spots.len() == 1 {
            return None;
        }
        escaped += push_without_masks(text.get(from..).unwrap_or_default(), &mut parts);
        masked = Cow::Owned(parts);
    }
    let (head, rest) = cut(&masked, max_graphemes, max_bytes);
    let shown = neutralise(head, line_breaks);
    let changes = Changes {
        masked: !spots.is_empty(),
        truncated: u64::try_from(rest.chars().count()).unwrap_or(u64::MAX),
        neutralised: shown.escaped + escaped,
        confusable: confusable_words(&shown.text),
    };
    Some((shown.text.into_owned(), changes))
}

/// Appends a text in which what looks like [`MASK`] is escaped; how many characters were.
fn push_without_masks(text: &str, out: &mut String) -> u64 {
    let mut escaped = 0;
    for (index, part) in text.split(MASK_CHARACTER).enumerate() {
        if index > 0 {
            out.push_str("\\u{2588}");
            escaped += 1;
        }
        out.push_str(part);
    }
    escaped
}

/// Parts a text after so many graphemes, or fewer where they would have more bytes; never within one.
fn cut(text: &str, max_graphemes: usize, max_bytes: usize) -> (&str, &str) {
    let within = text.floor_char_boundary(max_bytes);
    let head = text.get(..within).unwrap_or_default();
    let mut starts = head.grapheme_indices(true).map(|(start, _)| start);
    let end = match starts.nth(max_graphemes) {
        Some(end) => end,
        None if within == text.len() => within,
        // The last one may go on beyond the limit.
        None => head.grapheme_indices(true).next_back().map_or(0, |(start, _)| start),
    };
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Two names that look alike once they are cut or escaped must not become one member. `taken` holds each name with
/// the number that the next one like it gets.
fn unique(name: &str, taken: &mut HashMap<String, usize>) -> String {
    let mut number = taken.get(name).copied().unwrap_or(1);
    let mut candidate = name.to_owned();
    while taken.contains_key(&candidate) {
        number += 1;
        candidate = format!("{name} ({number})");
    }
    taken.insert(candidate.clone(), 1);
    taken.insert(name.to_owned(), number);
    candidate
}

/// A flag of a command that takes its value from the next argument.
fn is_flag(text: &str) -> bool {
    text.starts_with('-')
        && !text.contains(|character: char| character.is_whitespace() || character == '=' || character == ':')
}
