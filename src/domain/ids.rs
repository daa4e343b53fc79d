//! The ids that the sidecar and agents make: UUIDs, each of a type of its own.

use std::fmt;
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The id of this UUID.
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Reads the hyphenated form (RFC 9562, section 4), in either case. The nil UUID names nothing.
            pub fn parse(text: &str) -> Option<Self> {
                if text.len() != 36 {
                    return None;
                }
                Uuid::try_parse(text).ok().filter(|uuid| !uuid.is_nil()).map(Self)
            }

            /// The UUID of this id.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0.as_hyphenated(), formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, formatter)
            }
        }
    };
}

id! {
    /// An approval's id: UUIDv7, made by the sidecar.
    ApprovalId
}
id! {
    /// An execution's id: UUIDv7, made by the sidecar.
    ExecutionId
}
id! {
    /// An agent's id of one attempt, unique per caller, principal and agent.
    AttemptId
}
id! {
    /// A wait's id: UUIDv7, made by the sidecar.
    WaitId
}
id! {
    /// An audit record's id: UUIDv7, made by the sidecar.
    AuditRecordId
}

#[cfg(test)]
mod tests {
    use super::AttemptId;

    #[test]
    fn one_uuid_has_one_text() {
        let id = AttemptId::parse("0190B6C0-0000-7000-8000-00000000000A").unwrap();
        assert_eq!(id.to_string(), "0190b6c0-0000-7000-8000-00000000000a");
    }

    #[test]
    fn other_forms_and_the_nil_uuid_are_refused() {
        for text in [
            "",
            "00000000-0000-0000-0000-000000000000",
            "0190b6c0000070008000000000000000",
            "{0190b6c0-0000-7000-8000-00000000000a}",
            "urn:uuid:0190b6c0-0000-7000-8000-00000000000a",
            "0190b6c0-0000-7000-8000-00000000000g",
        ] {
            assert!(AttemptId::parse(text).is_none(), "{text:?}");
        }
    }
}
