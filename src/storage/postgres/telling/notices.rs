//! What notifications say: who sends them, and which approvals have which version, or that there are too many to name.

use crate::domain::ids::ApprovalId;
use crate::storage::changes::Touch;
use std::collections::HashMap;
use uuid::Uuid;

/// The database takes less than 8,000 bytes.
const LONGEST: usize = 7_500;
/// Instead of touches: there are more than fit, or it is not known which.
const MANY: &str = "many";
/// A sender and a space, and each touch: 32 digits, a colon, up to 20 digits, a space.
const SENDER: usize = 33;
const TOUCH: usize = 54;
/// Touches that surely fit.
const MOST: usize = (LONGEST - SENDER) / TOUCH;

/// What is to be sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    order: Vec<ApprovalId>,
    versions: HashMap<ApprovalId, u64>,
    /// More than fits, or not known.
    many: bool,
}

/// What a notification said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// These changed.
    Touched(Vec<Touch>),
    /// It is to be looked.
    Many,
    /// This process sent it, or it is none of ours.
    Nothing,
}

impl Outbox {
    /// Adds what was committed; of several versions of one approval the last is sent.
    pub(super) fn add(&mut self, touches: &[Touch]) {
        for touch in touches {
            if self.many {
                return;
            }
            match self.versions.get_mut(&touch.id) {
                Some(version) => *version = touch.version.max(*version),
                None if self.order.len() == MOST => self.add_unknown(),
                None => {
                    self.order.push(touch.id);
                    self.versions.insert(touch.id, touch.version);
                }
            }
        }
    }

    /// Adds that more changed than is known.
    pub(super) fn add_unknown(&mut self) {
        *self = Self { many: true, ..Self::default() };
    }

    /// The notification of all that is to be sent, and then is not any more; none if nothing is.
    pub(super) fn take(&mut self, sender: Uuid) -> Option<String> {
        let Self { order, versions, many } = std::mem::take(self);
        if many {
            return Some(format!("{} {MANY}", sender.simple()));
        }
        if order.is_empty() {
            return None;
        }
        let mut text = sender.simple().to_string();
        for id in order {
            let version = versions.get(&id).copied().unwrap_or(0);
            text.push_str(&format!(" {}:{version}", id.uuid().simple()));
        }
        Some(text)
    }
}

impl Notice {
    /// Reads what `me` heard. Anybody who may connect to the database can send anything.
    pub(super) fn parse(text: &str, me: Uuid) -> Self {
        let mut words = text.split(' ');
        let sender = words.next().filter(|word| word.len() == 32).and_then(|word| Uuid::try_parse(word).ok());
        if sender.is_none_or(|sender| sender == me) {
            return Self::Nothing;
        }
        let mut touches = Vec::new();
        for word in words {
            if word == MANY {
                return Self::Many;
            }
            let Some((id, version)) = word.split_once(':') else { return Self::Nothing };
            let id = Some(id).filter(|id| id.len() == 32).and_then(|id| Uuid::try_parse(id).ok());
            let (Some(id), Ok(version)) = (id.filter(|id| !id.is_nil()), version.parse()) else {
                return Self::Nothing;
            };
            touches.push(Touch { id: ApprovalId::new(id), version });
        }
        if touches.is_empty() { Self::Nothing } else { Self::Touched(touches) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn touch(number: u64, version: u64) -> Touch {
        Touch { id: ApprovalId::new(Uuid::from_u64_pair(7, number)), version }
    }

    #[test]
    fn what_is_sent_is_read_by_others_and_not_by_oneself() {
        let mut outbox = Outbox::default();
        outbox.add(&[touch(1, 1), touch(2, 5)]);
        outbox.add(&[touch(1, 2)]);
        let text = outbox.take(OTHER).unwrap();
        assert_eq!(Notice::parse(&text, ME), Notice::Touched(vec![touch(1, 2), touch(2, 5)]));
        assert_eq!(Notice::parse(&text, OTHER), Notice::Nothing);
        assert_eq!(outbox.take(OTHER), None);
    }

    #[test]
    fn what_does_not_fit_is_said_to_be_many() {
        let mut outbox = Outbox::default();
        let most: Vec<Touch> = (1..=MOST).map(|number| touch(u64::try_from(number).unwrap(), u64::MAX)).collect();
        outbox.add(&most);
        let text = outbox.take(OTHER).unwrap();
        assert!(text.len() <= LONGEST, "{}", text.len());
        assert_eq!(Notice::parse(&text, ME), Notice::Touched(most.clone()));
        outbox.add(&most);
        outbox.add(&[touch(9_999, 1)]);
        assert_eq!(Notice::parse(&outbox.take(OTHER).unwrap(), ME), Notice::Many);
        outbox.add_unknown();
        outbox.add(&most);
        assert_eq!(Notice::parse(&outbox.take(OTHER).unwrap(), ME), Notice::Many);
    }

    #[test]
    fn what_is_no_notice_of_ours_says_nothing() {
        let other = OTHER.simple();
        for text in [
            "",
            " ",
            "many",
            "hello world",
            &format!("{other}"),
            &format!("{other} "),
            &format!("{other} x"),
            &format!("{other} {}:", ME.simple()),
            &format!("{other} {}:-1", ME.simple()),
            &format!("{other} {}:1", ME.hyphenated()),
            &format!("{other} {}:1", Uuid::nil().simple()),
            &format!("{other} {}:99999999999999999999999", ME.simple()),
        ] {
            assert_eq!(Notice::parse(text, ME), Notice::Nothing, "{text:?}");
        }
    }
}
