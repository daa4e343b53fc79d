//! What a seal stands for: one record, whole, as one text. The text is canonical JSON, so there is one for each record, and
//! who changes any fact of a record changes its text, and with it the hash.
//!
//! It is made of what the table has, byte by byte, and not of what it means: a record that somebody has put there or changed
//! to what no binary of ours would write has a text as well, and is found by it.

use crate::domain::canonical::{compare_names, push_string};
use crate::domain::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What the member `v` of every leaf says.
pub const LEAF_VERSION: &str = "countersign.audit/v1";

/// The columns of a record that are text, as its table and its leaf name them.
pub const TEXTS: [&str; 19] = [
    "id",
    "kind",
    "caller",
    "principal",
    "agent",
    "conversation",
    "connector",
    "account",
    "action",
    "approval_id",
    "execution_id",
    "wait_id",
    "fingerprint",
    "policy_revision",
    "person",
    "decision",
    "reason",
    "note",
    LABELS,
];

/// The one of them that is a JSON object.
const LABELS: &str = "labels";

/// A text as it stands in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A text.
    Text(String),
    /// What no binary of ours writes: its bytes as the table has them.
    Unreadable(String),
}

/// A record as it stands in the table.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place in the store's order of writing.
    pub position: i64,
    /// When, by the store's time.
    pub time: Timestamp,
    /// Its other columns, those that have something.
    pub texts: BTreeMap<&'static str, Stored>,
}

/// Shows its place alone: a record may have what a person said.
impl std::fmt::Debug for StoredRecord {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StoredRecord").field("position", &self.position).finish_non_exhaustive()
    }
}

impl StoredRecord {
    /// Its id, as it stands there; empty if it has none.
    pub fn id(&self) -> &str {
        match self.texts.get("id") {
            Some(Stored::Text(id) | Stored::Unreadable(id)) => id,
            None => "",
        }
    }

    /// The content of its leaf: canonical JSON (RFC 8785 for all that it holds). `v`, `position` and `time_us` are numbers and
    /// a text that every record has; every other member is a column that is not NULL. Labels are an object.
    pub fn leaf_text(&self) -> String {
        let mut members: Vec<(&str, String)> =
            self.texts.iter().map(|(name, text)| (*name, value(name, text))).collect();
        members.push(("position", self.position.to_string()));
        members.push(("time_us", self.time.micros().to_string()));
        let mut version = String::new();
        push_string(LEAF_VERSION, &mut version);
        members.push(("v", version));
        members.sort_by(|left, right| compare_names(left.0, right.0));
        let mut text = String::with_capacity(512);
        for (place, (name, value)) in members.iter().enumerate() {
            text.push(if place == 0 { '{' } else { ',' });
            // Writing to a text does not fail.
            let _ = write!(text, "\"{name}\":{value}");
        }
        text.push('}');
        text
    }
}

/// The JSON of one column.
fn value(name: &str, stored: &Stored) -> String {
    let mut value = String::new();
    match stored {
        Stored::Text(text) if name == LABELS => match labels(text) {
            Some(object) => value = object,
            None => push_string(text, &mut value),
        },
        Stored::Text(text) => push_string(text, &mut value),
        Stored::Unreadable(bytes) => {
            // No column is an array.
            value.push_str("[\"unreadable\",");
            push_string(bytes, &mut value);
            value.push(']');
        }
    }
    value
}

/// The canonical object of these labels, if that is how they are written down: what says the same in other bytes is another
/// text.
fn labels(text: &str) -> Option<String> {
    let labels: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    if serde_json::to_string(&labels).ok()? != text {
        return None;
    }
    let mut sorted: Vec<(&String, &String)> = labels.iter().collect();
    sorted.sort_by(|left, right| compare_names(left.0, right.0));
    let mut object = String::from("{");
    for (place, (name, value)) in sorted.into_iter().enumerate() {
        if place > 0 {
            object.push(',');
        }
        push_string(name, &mut object);
        object.push(':');
        push_string(value, &mut object);
    }
    object.push('}');
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::canonical::Canonical;
    use proptest::prelude::*;

    fn record(texts: &[(&'static str, &str)]) -> StoredRecord {
        let texts = texts.iter().map(|(name, text)| (*name, Stored::Text((*text).to_owned()))).collect();
        StoredRecord { position: 7, time: Timestamp::from_micros(1_767_225_600_000_000), texts }
    }

    #[test]
    fn a_leaf_is_this_text() {
        let sample = record(&[
            ("id", "019b76da-a800-7000-8000-000000000001"),
            ("kind", "approval.decided"),
            ("note", "\"go\"\n"),
            ("labels", "{\"b\":\"2\",\"a\":\"1\"}"),
        ]);
        assert_eq!(
            sample.leaf_text(),
            "{\"id\":\"019b76da-a800-7000-8000-000000000001\",\"kind\":\"approval.decided\",\
             \"labels\":\"{\\\"b\\\":\\\"2\\\",\\\"a\\\":\\\"1\\\"}\",\"note\":\"\\\"go\\\"\\n\",\"position\":7,\
             \"time_us\":1767225600000000,\"v\":\"countersign.audit/v1\"}",
            "labels that were not written by us are the text that they are"
        );
        let sample = record(&[("labels", "{\"a\":\"1\",\"b\":\"2\"}")]);
        let text = "{\"labels\":{\"a\":\"1\",\"b\":\"2\"},\"position\":7,\"time_us\":1767225600000000,\"v\":\"countersign.audit/v1\"}";
        assert_eq!(sample.leaf_text(), text);
        assert_eq!(sample.id(), "");
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[\\x00-\\x1f'\"\\\\,:{}0\u{10ffff}]{0,8}", Just("{}".to_owned())]
    }

    fn stored() -> impl Strategy<Value = StoredRecord> {
        let texts = prop::collection::btree_map(
            prop::sample::select(TEXTS.to_vec()),
            prop_oneof![4 => text().prop_map(Stored::Text), 1 => text().prop_map(Stored::Unreadable)],
            0..6,
        );
        let labels = prop::option::of(prop::collection::btree_map(text(), text(), 0..3));
        (any::<i64>(), any::<i64>(), texts, labels).prop_map(|(position, time, mut texts, labels)| {
            if let Some(labels) = labels {
                texts.insert(LABELS, Stored::Text(serde_json::to_string(&labels).unwrap()));
            }
            StoredRecord { position, time: Timestamp::from_micros(time), texts }
        })
    }

    proptest! {
        #[test]
        fn no_two_records_have_one_text(one in stored(), other in stored()) {
            prop_assert_eq!(one == other, one.leaf_text() == other.leaf_text());
        }

        #[test]
        fn a_text_is_canonical(one in stored()) {
            prop_assert!(Canonical::from_stored(&one.leaf_text()).is_ok());
        }

        #[test]
        fn whatever_is_changed_alone_changes_the_text(one in stored(), name in prop::sample::select(TEXTS.to_vec()), text in text()) {
            let before = one.leaf_text();
            for change in [
                StoredRecord { position: one.position.wrapping_add(1), ..one.clone() },
                StoredRecord { time: Timestamp::from_micros(one.time.micros() ^ 1), ..one.clone() },
            ] {
                prop_assert_ne!(&change.leaf_text(), &before);
            }
            let mut changed = one.clone();
            let was = changed.texts.insert(name, Stored::Text(text.clone()));
            prop_assert_eq!(changed.leaf_text() == before, was == Some(Stored::Text(text.clone())));
            // What moves from one column to its neighbour, or past a quote, is another record.
            let shifted = |one: &str, other: &str| {
                let texts = [("reason", one), ("note", other)].map(|(name, text)| (name, Stored::Text(text.to_owned())));
                StoredRecord { position: 1, time: Timestamp::from_micros(1), texts: texts.into() }.leaf_text()
            };
            prop_assert_ne!(shifted(&format!("{text}x"), "y"), shifted(&text, "xy"));
            prop_assert_ne!(shifted(&format!("{text}\",\"note\":\"y"), ""), shifted(&text, "y"));
        }
    }
}
