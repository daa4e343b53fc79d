//! What stands for the remote service: a mailbox in memory that takes an idempotency key, as good services do.

/// An email that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    /// The service's id of it.
    pub(super) id: String,
    idempotency_key: String,
}

/// Everything that was really sent.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    sent: Vec<Sent>,
}

impl Mailbox {
    /// Sends; the same key again sends nothing and answers the first one's id.
    pub(super) fn send(&mut self, idempotency_key: &str) -> String {
        if let Some(sent) = self.sent.iter().find(|sent| sent.idempotency_key == idempotency_key) {
            return sent.id.clone();
        }
        let id = format!("message-{}", self.sent.len() + 1);
        self.sent.push(Sent { id: id.clone(), idempotency_key: idempotency_key.to_owned() });
        id
    }

    /// How many emails were sent.
    pub(super) fn count(&self) -> usize {
        self.sent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_sends_once() {
        let mut mailbox = Mailbox::default();
        assert_eq!(
            (mailbox.send("a"), mailbox.send("a"), mailbox.count()),
            ("message-1".into(), "message-1".into(), 1)
        );
        assert_eq!((mailbox.send("b"), mailbox.count()), ("message-2".into(), 2));
    }
}
