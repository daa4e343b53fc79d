//! All of an approval's arguments, for those who may decide it, who did, and its principal. They are opened, checked against
//! the fingerprint, and handed out only once the audit has who read them.

use super::approvals::viewer;
use super::{Engine, EngineError};
use crate::domain::approval::{Approval, CommandRefusal, Person};
use crate::domain::arguments::Arguments;
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::ApprovalId;
use crate::secrets::SealError;
use crate::storage::{SealedArguments, StoreError};

/// The arguments that an approval is about: raw, as the agent wrote them but for their canonical form.
#[derive(Debug)]
pub struct WholeArguments {
    /// All of them.
    pub arguments: Arguments,
    /// What they were checked against.
    pub fingerprint: Fingerprint,
}

impl Engine {
    /// The arguments of an approval that this person may decide, has decided, or is the principal of.
    ///
    /// # Errors
    /// The person sees no approval of that id, or may not read its arguments; they are erased; they are not what was
    /// sealed; the store, which is also asked to record the reading.
    pub async fn whole_arguments(&self, person: &Person, id: ApprovalId) -> Result<WholeArguments, EngineError> {
        let loaded = self.store.arguments_seen_by(id, viewer(person)).await?;
        let found = loaded.row.filter(|found| found.approval.is_visible_to(person));
        let found = found.ok_or(EngineError::ApprovalUnknown)?;
        let approval = found.approval.as_of(loaded.now);
        let opened = match &found.arguments {
            _ if !approval.may_read_arguments(person) => {
                Err(EngineError::Command(CommandRefusal::NotAnApprover, Box::new(approval.clone())))
            }
            None => Err(EngineError::ArgumentsErased(id)),
            Some(sealed) => self.opened(&approval, sealed),
        };
        let (kind, decision, reason) = match &opened {
            Ok(_) => (AuditKind::ArgumentsRead, "READ", None),
            Err(EngineError::Command(refusal, _)) => (AuditKind::ArgumentsRefused, "REFUSED", Some(refusal.reason())),
            Err(EngineError::ArgumentsErased(_)) => (AuditKind::ArgumentsRefused, "REFUSED", Some("ARGUMENTS_ERASED")),
            Err(EngineError::SecretMissing(_)) => (AuditKind::ArgumentsRefused, "REFUSED", Some("SECRET_MISSING")),
            Err(_) => (AuditKind::ArgumentsRefused, "REFUSED", Some("INTERNAL")),
        };
        let event = AuditEvent {
            person: Some(person.id.clone()),
            reason: reason.map(str::to_owned),
            ..approval.event(kind, Some(&person.caller), decision)
        };
        self.store.record(vec![event]).await?;
        opened
    }

    /// Opens sealed arguments. What opens and is not what the approval was asked about is as corrupt as what does not.
    fn opened(&self, approval: &Approval, sealed: &SealedArguments) -> Result<WholeArguments, EngineError> {
        let corrupt = |cause: &dyn std::fmt::Display| {
            tracing::error!(approval_id = %approval.id, %cause, "the sealed arguments are corrupt");
            EngineError::Store(StoreError::Corrupt { table: "approval_arguments", id: approval.id.to_string() })
        };
        let subject = &approval.question.subject;
        let text = match self.keys().unseal(approval.id, &subject.fingerprint, sealed) {
            Ok(text) => text,
            Err(error @ SealError::NotGenuine) => return Err(corrupt(&error)),
            Err(SealError::KeyMissing { id }) => return Err(EngineError::SecretMissing(vec![id])),
            Err(error) => return Err(EngineError::Sealing(error)),
        };
        // Neither refusal repeats any of the text.
        let arguments = Arguments::from_stored(&text).map_err(|_| corrupt(&"what was sealed is not canonical JSON"))?;
        let fingerprint = subject.fingerprint_with(&arguments);
        if fingerprint != subject.fingerprint || arguments.digest() != subject.arguments_digest {
            return Err(corrupt(&"what was sealed has another fingerprint"));
        }
        Ok(WholeArguments { arguments, fingerprint })
    }
}
