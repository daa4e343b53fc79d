//! Shares out the room of a preview and writes it.

use crate::domain::json::Json;

use super::names::SensitiveNames;
use super::plan::{Changes, Member, Node, Planner, Shape, preferred};
use super::{NOTES_ROOM, Omission, OmissionKind, Preview, PreviewConfig, note_cost};

/// What a text or container gets at least of an array's room, so that a list shows some items well rather than many
/// empty ones; and of an object's, while all members fit.
const GOOD_BYTES: usize = 64;

/// What a text or container gets at least where not all members of an object fit.
const FAIR_BYTES: usize = 32;

/// The shortest that a text or container can be.
const LEAST_BYTES: usize = 2;

/// One preview in the making.
///
/// Whoever calls [`Render::node`] has seen to it that the node fits; the node shares its room out among its own. So no
/// part of the arguments can take the room of a part beside it.
pub(super) struct Render {
    out: String,
    /// Where the walk is.
    pointer: String,
    omissions: Vec<Omission>,
}

/// Room for a value: bytes of the preview, and room in the list of omissions.
#[derive(Debug, Clone, Copy)]
struct Room {
    bytes: usize,
    notes: usize,
}

/// What one of the parts of a container asks for.
#[derive(Debug, Clone, Copy)]
struct Want {
    /// Without this it is left out.
    least: Room,
    /// More than this it does not need.
    most: Room,
    /// What its name takes of both.
    around: Room,
}

impl Render {
    /// The preview of arguments.
    pub(super) fn preview(config: &PreviewConfig, names: &SensitiveNames, arguments: &Json) -> Preview {
        let node = Planner { config, names }.value(arguments, 0, 0);
        let mut render = Self { out: String::new(), pointer: String::new(), omissions: Vec::new() };
        if node.bytes > config.max_total_bytes && !node.can_be_cut() {
            render.out.push_str("null");
            render.omit(OmissionKind::Elided, 1);
        } else {
            render.node(&node, Changes::default(), Room { bytes: config.max_total_bytes, notes: NOTES_ROOM });
        }
        Preview { json: render.out, omissions: render.omissions }
    }

    /// Writes a value within its room, and notes what was done to it and to its name.
    fn node(&mut self, node: &Node<'_>, of_name: Changes, room: Room) {
        match &node.shape {
            Shape::Fixed(text, changes) => {
                self.out.push_str(text);
                self.note(changes.and(of_name));
            }
            Shape::Text(text) => {
                let (written, changes) = text.fit(room.bytes, node.bytes);
                self.out.push_str(&written);
                self.note(changes.and(of_name));
            }
            Shape::Nested(count) => {
                self.note(of_name);
                self.out.push_str("null");
                self.omit(OmissionKind::Nested, *count);
            }
            Shape::Array { items, beyond } => {
                self.note(of_name);
                self.array(items, *beyond, room.inside(node));
            }
            Shape::Object { members, limit } => {
                self.note(of_name);
                self.object(members, *limit, room.inside(node));
            }
        }
    }

    fn array(&mut self, items: &[Node<'_>], beyond: usize, room: Room) {
        let whole = items.iter().map(|item| item.bytes.saturating_add(1)).fold(0, usize::saturating_add) <= room.bytes;
        let ask = |item: &Node<'_>, least| want(item, Room { bytes: 1, notes: 0 }, least, whole);
        let mut left = room;
        let mut wants = Vec::new();
        for item in items {
            let mut ask_for = ask(item, GOOD_BYTES);
            if wants.is_empty() && !left.holds(ask_for) {
                ask_for = ask(item, LEAST_BYTES);
            }
            if !left.take(ask_for) {
                break;
            }
            wants.push(ask_for);
        }
        self.out.push('[');
        for (index, (item, room)) in items.iter().zip(share_out(&wants, left)).enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.at(&format!("/{index}"), |this| this.node(item, Changes::default(), room));
        }
        self.out.push(']');
        let left_out = items.len() - wants.len() + beyond;
        if left_out > 0 {
            self.omit(OmissionKind::Elided, left_out);
        }
    }

    fn object(&mut self, members: &[Member<'_>], limit: usize, room: Room) {
        let around = |member: &Member<'_>| Room { bytes: member.name.len() + 1, notes: member.name_notes };
        let whole = members
            .iter()
            .map(|member| member.value.bytes.saturating_add(around(member).bytes))
            .fold(0, usize::saturating_add)
            <= room.bytes;
        let ask = |member: &Member<'_>, least| want(&member.value, around(member), least, whole);
        let fits = |least| {
            let mut left = room;
            members.len() <= limit && members.iter().all(|member| left.take(ask(member, least)))
        };
        let least = [GOOD_BYTES, LEAST_BYTES].into_iter().find(|least| fits(*least));
        let mut left = room;
        if least.is_none() && self.pointer.is_empty() {
            // Whoever decides learns the names of what is left out at the top.
            left.notes /= 2;
        }
        let names_room = room.notes - left.notes;
        let mut shown = vec![false; members.len()];
        let mut wants = Vec::new();
        for index in preferred(members) {
            let Some((member, is_shown)) = members.get(index).zip(shown.get_mut(index)) else { continue };
            let ask_for = ask(member, least.unwrap_or(FAIR_BYTES));
            if wants.len() < limit && left.take(ask_for) {
                *is_shown = true;
                wants.push((index, ask_for));
            }
        }
        wants.sort_by_key(|(index, _)| *index);
        let wants: Vec<Want> = wants.into_iter().map(|(_, want)| want).collect();
        let mut rooms = share_out(&wants, left).into_iter();
        self.out.push('{');
        let mut comma = false;
        for (member, _) in members.iter().zip(&shown).filter(|(_, shown)| **shown) {
            let Some(room) = rooms.next() else { break };
            if std::mem::replace(&mut comma, true) {
                self.out.push(',');
            }
            self.out.push_str(&member.name);
            self.at(&member.segment, |this| this.node(&member.value, member.of_name, room));
        }
        self.out.push('}');
        let left_out = members.iter().zip(&shown).filter(|(_, shown)| !**shown).map(|(member, _)| member);
        self.leave_out(left_out.collect(), names_room);
    }

    /// Notes which members are left out: by name as far as `room` goes, then by number.
    fn leave_out(&mut self, members: Vec<&Member<'_>>, mut room: usize) {
        let mut unnamed = 0;
        for member in members {
            let cost = note_cost(self.pointer.len() + member.segment.len());
            if cost <= room {
                room -= cost;
                self.at(&member.segment, |this| this.omit(OmissionKind::Elided, 1));
            } else {
                unnamed += 1;
            }
        }
        if unnamed > 0 {
            self.omit(OmissionKind::Elided, unnamed);
        }
    }

    fn at(&mut self, segment: &str, write: impl FnOnce(&mut Self)) {
        let length = self.pointer.len();
        self.pointer.push_str(segment);
        write(self);
        self.pointer.truncate(length);
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
        self.omissions.push(Omission { field: None, pointer: self.pointer.clone(), kind, count });
    }
}

impl Room {
    /// What is left for the parts of a container, whose brackets and own omission are paid for. Every part is counted
    /// with a comma, the last has none.
    fn inside(self, node: &Node<'_>) -> Self {
        let whole = self.bytes >= node.bytes && self.notes >= node.notes;
        let own_notes = if whole { 0 } else { node.own_notes };
        Self { bytes: self.bytes.saturating_sub(1), notes: self.notes.saturating_sub(own_notes) }
    }

    fn holds(self, want: Want) -> bool {
        want.least.bytes.saturating_add(want.around.bytes) <= self.bytes
            && want.least.notes.saturating_add(want.around.notes) <= self.notes
    }

    /// Takes the least that is wanted, if it is there.
    fn take(&mut self, want: Want) -> bool {
        let holds = self.holds(want);
        if holds {
            self.bytes -= want.least.bytes + want.around.bytes;
            self.notes -= want.least.notes + want.around.notes;
        }
        holds
    }
}

/// What a part asks for, if it gets at least so many bytes, or if all parts can be `whole`.
fn want(node: &Node<'_>, around: Room, least: usize, whole: bool) -> Want {
    let bytes = if whole || !node.can_be_cut() { node.bytes } else { node.bytes.min(least) };
    let notes = if bytes == node.bytes { node.notes } else { node.notes_if_cut };
    let least = match node.shape {
        Shape::Array { .. } | Shape::Object { .. } => Room { bytes, notes: node.own_notes.min(notes) },
        _ => Room { bytes, notes },
    };
    let most = Room { bytes: node.bytes, notes: notes.max(least.notes) };
    Want { least, most, around }
}

/// Gives each its least and shares what is left: nobody gets more than needed, and what one does not need the others
/// share.
fn share_out(wants: &[Want], left: Room) -> Vec<Room> {
    let bytes = level(wants.iter().map(|want| want.most.bytes - want.least.bytes).collect(), left.bytes);
    let notes = level(wants.iter().map(|want| want.most.notes - want.least.notes).collect(), left.notes);
    wants
        .iter()
        .zip(bytes.into_iter().zip(notes))
        .map(|(want, (bytes, notes))| Room { bytes: want.least.bytes + bytes, notes: want.least.notes + notes })
        .collect()
}

fn level(mut needs: Vec<usize>, mut left: usize) -> Vec<usize> {
    let mut order: Vec<&mut usize> = needs.iter_mut().collect();
    order.sort_by_key(|need| **need);
    let mut sharers = order.len();
    for need in order {
        *need = (*need).min(left.checked_div(sharers).unwrap_or(0));
        left -= *need;
        sharers -= 1;
    }
    needs
}
