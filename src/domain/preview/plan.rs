//! The arguments as they could be shown if there were room enough, with what every part of them takes.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use unicode_segmentation::UnicodeSegmentation;

use crate::domain::canonical::push_string;
use crate::domain::json::Json;
use crate::domain::text::{LineBreaks, confusable_words, neutralise};

use super::names::SensitiveNames;
use super::{MASK, MASK_CHARACTER, OmissionKind, PreviewConfig, credentials, note_cost};

/// The most graphemes of a member's name.
const MAX_NAME_GRAPHEMES: usize = 64;

/// The most bytes of a member's name, before escapes.
const MAX_NAME_BYTES: usize = 192;

/// A value, masked, and what it takes: bytes of the preview, and room in the list of omissions.
pub(super) struct Node<'a> {
    pub(super) shape: Shape<'a>,
    /// The bytes of the whole.
    pub(super) bytes: usize,
    /// The room for the omissions of the whole.
    pub(super) notes: usize,
    /// The room for the omissions if whatever can be shortened is shortened.
    pub(super) notes_if_cut: usize,
    /// The room for the value's own omissions, without those of what it contains.
    pub(super) own_notes: usize,
}

/// What kind of value a [`Node`] is.
pub(super) enum Shape<'a> {
    /// Shown whole or not at all.
    Fixed(Cow<'a, str>, Changes),
    /// May be cut further.
    Text(Text<'a>),
    /// An array or object that stands too deep, with so many items.
    Nested(usize),
    Array {
        items: Vec<Node<'a>>,
        /// How many items are beyond the limit.
        beyond: usize,
    },
    Object {
        /// In the order of the arguments.
        members: Vec<Member<'a>>,
        /// How many of them may be shown at most.
        limit: usize,
    },
}

/// A member of an object.
pub(super) struct Member<'a> {
    /// Its name as it is written, with the colon.
    pub(super) name: String,
    /// Its part of a pointer, with the slash.
    pub(super) segment: String,
    pub(super) of_name: Changes,
    pub(super) name_notes: usize,
    pub(super) value: Node<'a>,
}

/// A string in which credentials are masked.
pub(super) struct Text<'a> {
    masked: Cow<'a, str>,
    has_masks: bool,
    /// Where each character of the mask that was in the string became an escape.
    escapes: Vec<usize>,
    line_breaks: LineBreaks,
    max_graphemes: usize,
    max_bytes: usize,
}

/// What was done to a text, by kind.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Changes {
    pub(super) masked: bool,
    pub(super) truncated: u64,
    neutralised: u64,
    confusable: u64,
}

/// Makes the plan of one preview.
pub(super) struct Planner<'p> {
    pub(super) config: &'p PreviewConfig,
    pub(super) names: &'p SensitiveNames,
}

impl Planner<'_> {
    /// The plan of a value inside `depth` objects and arrays, whose pointer has `pointer` bytes.
    pub(super) fn value<'a>(&self, value: &'a Json, depth: usize, pointer: usize) -> Node<'a> {
        match value {
            Json::Null => fixed("null", Changes::default(), pointer),
            Json::Bool(true) => fixed("true", Changes::default(), pointer),
            Json::Bool(false) => fixed("false", Changes::default(), pointer),
            Json::Number(number) => fixed(number.as_str(), Changes::default(), pointer),
            Json::String(text) => self.string(text, pointer),
            Json::Array(items) if !items.is_empty() && depth >= self.config.max_depth => nested(items.len(), pointer),
            Json::Object(members) if !members.is_empty() && depth >= self.config.max_depth => {
                nested(members.len(), pointer)
            }
            Json::Array(items) => self.array(items, depth + 1, pointer),
            Json::Object(members) => self.object(members, depth + 1, pointer),
        }
    }

    fn string<'a>(&self, text: &'a str, pointer: usize) -> Node<'a> {
        let limits = (self.config.max_string_graphemes, self.config.max_string_bytes);
        let Some(text) = Text::new(text, self.names, limits, LineBreaks::Keep) else { return masked(pointer) };
        let (shown, changes) = text.show(text.max_bytes);
        let notes = changes.kinds() * note_cost(pointer);
        let notes_if_cut = notes + usize::from(changes.truncated == 0) * note_cost(pointer);
        Node { bytes: quoted(&shown).len(), notes, notes_if_cut, own_notes: notes, shape: Shape::Text(text) }
    }

    fn array<'a>(&self, items: &'a [Json], depth: usize, pointer: usize) -> Node<'a> {
        let pair = matches!(items, [Json::String(name), Json::String(_)] if self.names.is_sensitive_label(name));
        let mut after_flag = false;
        let mut nodes = Vec::with_capacity(items.len().min(self.config.max_array_items));
        for (index, item) in items.iter().enumerate().take(self.config.max_array_items) {
            let pointer = pointer + 1 + index.to_string().len();
            let secret = after_flag || (pair && index == 1);
            nodes.push(if secret { masked(pointer) } else { self.value(item, depth, pointer) });
            after_flag = item.as_str().is_some_and(|text| is_flag(text) && self.names.is_sensitive_label(text));
        }
        let beyond = items.len() - nodes.len();
        let mut node = container(nodes.iter().map(|node| (1, 0, node)), pointer, beyond > 0);
        node.shape = Shape::Array { items: nodes, beyond };
        node
    }

    fn object<'a>(&self, members: &'a [(String, Json)], depth: usize, pointer: usize) -> Node<'a> {
        let labels = self.names.sensitive_labels(members);
        let mut taken = HashMap::new();
        let mut planned = Vec::with_capacity(members.len());
        for (name, value) in members {
            let limits = (MAX_NAME_GRAPHEMES, MAX_NAME_BYTES);
            let shown = Text::new(name, self.names, limits, LineBreaks::Escape).filter(|text| !text.has_masks);
            let (text, of_name) = match shown {
                Some(text) => text.show(text.max_bytes),
                // A name that contains a credential is not shown, nor what it holds.
                None => (MASK.to_owned(), Changes { masked: true, ..Changes::default() }),
            };
            let text = unique(&text, &mut taken);
            let segment = format!("/{}", text.replace('~', "~0").replace('/', "~1"));
            let pointer = pointer + segment.len();
            let secret = of_name.masked || self.names.is_sensitive(name) || labels.cover(name);
            let value = if secret { masked(pointer) } else { self.value(value, depth, pointer) };
            let name_notes = of_name.kinds() * note_cost(pointer);
            planned.push(Member { name: format!("{}:", quoted(&text)), segment, of_name, name_notes, value });
        }
        let limit = self.config.max_object_members;
        let shown = preferred(&planned).into_iter().take(limit).filter_map(|index| planned.get(index));
        let parts = shown.map(|member| (member.name.len() + 1, member.name_notes, &member.value));
        let mut node = container(parts, pointer, planned.len() > limit);
        node.shape = Shape::Object { members: planned, limit };
        node
    }
}

impl Node<'_> {
    /// Whether it can be shown in part.
    pub(super) const fn can_be_cut(&self) -> bool {
        matches!(self.shape, Shape::Text(_) | Shape::Array { .. } | Shape::Object { .. })
    }

    const fn is_container(&self) -> bool {
        matches!(self.shape, Shape::Nested(_) | Shape::Array { .. } | Shape::Object { .. })
    }
}

/// Members in the order in which they are taken while not all fit: scalars before containers, short before long.
pub(super) fn preferred(members: &[Member<'_>]) -> Vec<usize> {
    let mut order: Vec<(usize, &Member<'_>)> = members.iter().enumerate().collect();
    order.sort_by_key(|(_, member)| {
        (Reverse(!member.value.is_container()), member.value.bytes.saturating_add(member.name.len()))
    });
    order.into_iter().map(|(index, _)| index).collect()
}

fn fixed<'a>(text: &'a str, changes: Changes, pointer: usize) -> Node<'a> {
    let notes = changes.kinds() * note_cost(pointer);
    let shape = Shape::Fixed(Cow::Borrowed(text), changes);
    Node { shape, bytes: text.len(), notes, notes_if_cut: notes, own_notes: notes }
}

fn masked<'a>(pointer: usize) -> Node<'a> {
    fixed("null", Changes { masked: true, ..Changes::default() }, pointer)
}

fn nested<'a>(count: usize, pointer: usize) -> Node<'a> {
    let notes = note_cost(pointer);
    Node { shape: Shape::Nested(count), bytes: 4, notes, notes_if_cut: notes, own_notes: notes }
}

/// What a container takes for parts of which each has so many bytes around it and so much room for its name's
/// omissions. Its shape is still to be set.
fn container<'a, 'n: 'a>(
    parts: impl Iterator<Item = (usize, usize, &'a Node<'n>)>,
    pointer: usize,
    ends_early: bool,
) -> Node<'n> {
    let (mut bytes, mut notes, mut notes_if_cut, mut count) = (2_usize, 0_usize, 0_usize, 0_usize);
    for (around, name_notes, node) in parts {
        bytes = bytes.saturating_add(around).saturating_add(node.bytes);
        notes = notes.saturating_add(name_notes).saturating_add(node.notes);
        notes_if_cut = notes_if_cut.saturating_add(name_notes).saturating_add(node.notes_if_cut);
        count += 1;
    }
    // Each part is counted with a comma; the last has none.
    bytes -= usize::from(count > 0);
    let own_notes = usize::from(count > 0) * note_cost(pointer);
    Node {
        shape: Shape::Nested(0),
        bytes,
        notes: notes.saturating_add(usize::from(ends_early) * note_cost(pointer)),
        notes_if_cut: notes_if_cut.saturating_add(own_notes),
        own_notes,
    }
}

impl<'a> Text<'a> {
    /// A text in which credentials are masked. None if it is a credential as a whole.
    fn new(
        text: &'a str,
        names: &SensitiveNames,
        (max_graphemes, max_bytes): (usize, usize),
        line_breaks: LineBreaks,
    ) -> Option<Self> {
        let spots = credentials::find(text, names);
        let mut escapes = Vec::new();
        let mut masked = Cow::Borrowed(text);
        if !spots.is_empty() || text.contains(MASK_CHARACTER) {
            let mut parts = String::with_capacity(text.len());
            let mut from = 0;
            for spot in &spots {
                push_without_masks(text.get(from..spot.start).unwrap_or_default(), &mut parts, &mut escapes);
                parts.push_str(MASK);
                from = spot.end;
            }
            if spots.first().is_some_and(|spot| spot.start == 0) && from == text.len() && spots.len() == 1 {
                return None;
            }
            push_without_masks(text.get(from..).unwrap_or_default(), &mut parts, &mut escapes);
            masked = Cow::Owned(parts);
        }
        Some(Self { masked, has_masks: !spots.is_empty(), escapes, line_breaks, max_graphemes, max_bytes })
    }

    /// The text as it is shown within so many bytes: first cut, then without what is hidden.
    fn show(&self, max_bytes: usize) -> (String, Changes) {
        let (head, rest) = cut(&self.masked, self.max_graphemes, max_bytes.min(self.max_bytes));
        let shown = neutralise(head, self.line_breaks);
        let escaped = self.escapes.partition_point(|at| *at < head.len());
        let changes = Changes {
            masked: self.has_masks,
            truncated: count(rest.chars().count()),
            neutralised: shown.escaped + count(escaped),
            confusable: confusable_words(&shown.text),
        };
        (shown.text.into_owned(), changes)
    }

    /// As much of the text as fits into `room` bytes of the preview, quotes and escapes included; the whole takes
    /// `whole_bytes`.
    pub(super) fn fit(&self, room: usize, whole_bytes: usize) -> (String, Changes) {
        let attempt = |bytes| {
            let (shown, changes) = self.show(bytes);
            (quoted(&shown), changes)
        };
        if whole_bytes <= room {
            return attempt(self.max_bytes);
        }
        // No character takes fewer bytes in the preview than in the text, and more text never takes less.
        let (mut fits, mut too_long) = (0, room.min(self.max_bytes).saturating_add(1));
        let mut best = attempt(0);
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            let candidate = attempt(middle);
            if candidate.0.len() <= room {
                best = candidate;
                fits = middle;
            } else {
                too_long = middle;
            }
        }
        best
    }
}

impl Changes {
    pub(super) fn list(self) -> [(OmissionKind, u64, bool); 4] {
        [
            (OmissionKind::Masked, 0, self.masked),
            (OmissionKind::Truncated, self.truncated, self.truncated > 0),
            (OmissionKind::Neutralised, self.neutralised, self.neutralised > 0),
            (OmissionKind::Confusable, self.confusable, self.confusable > 0),
        ]
    }

    pub(super) fn kinds(self) -> usize {
        self.list().iter().filter(|(_, _, done)| *done).count()
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            masked: self.masked || other.masked,
            truncated: self.truncated + other.truncated,
            neutralised: self.neutralised + other.neutralised,
            confusable: self.confusable + other.confusable,
        }
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn quoted(text: &str) -> String {
    let mut written = String::with_capacity(text.len() + 2);
    push_string(text, &mut written);
    written
}

/// Appends a text in which what looks like [`MASK`] is escaped, and notes where.
fn push_without_masks(text: &str, out: &mut String, escapes: &mut Vec<usize>) {
    for (index, part) in text.split(MASK_CHARACTER).enumerate() {
        if index > 0 {
            escapes.push(out.len());
            out.push_str("\\u{2588}");
        }
        out.push_str(part);
    }
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
