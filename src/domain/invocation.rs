//! One intended call: who acts for whom, where, as which account, doing what, for which objective. Its arguments are
//! covered by the fingerprint.

use super::arguments::Arguments;
use super::fingerprint::{ArgumentsDigest, DefinitionDigest, Fingerprint, FingerprintInput, ObjectiveRef};
use super::text::Identifier;
use std::collections::BTreeMap;

/// What an agent is working on: all three together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    /// The transcript in which it was given.
    pub transcript: Identifier,
    /// The objective's (or the input's) id.
    pub id: Identifier,
    /// Its revision, at most [`super::limits::MAX_REVISION`].
    pub revision: u64,
}

/// An invocation without the text of its arguments: everything that approvals and executions keep of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// On whose behalf the agent acts.
    pub principal: Identifier,
    /// The program that acts.
    pub agent: Identifier,
    /// The session; none is a value of its own.
    pub conversation: Option<Identifier>,
    /// The integration.
    pub connector: Identifier,
    /// The external identity; none is a value of its own.
    pub account: Option<Identifier>,
    /// One authorisation of the account: recorded, never compared.
    pub connection: Option<Identifier>,
    /// The operation.
    pub action: Identifier,
    /// What the agent is working on; none is a value of its own.
    pub objective: Option<Objective>,
    /// SHA-256 over all that an approval covers.
    pub fingerprint: Fingerprint,
    /// SHA-256 over the canonical arguments alone, for telling which binding changed and which retries are equal.
    pub arguments_digest: ArgumentsDigest,
    /// The tool's definition as the enforcing process sees it; absent equals only absent.
    pub tool_definition_digest: Option<DefinitionDigest>,
    /// For the audit alone.
    pub labels: BTreeMap<String, String>,
}

impl Subject {
    /// The fingerprint of this call with `arguments`: its own, if they are the ones that it was computed over.
    pub fn fingerprint_with(&self, arguments: &Arguments) -> Fingerprint {
        fingerprint(self.account.as_ref(), &self.action, &self.connector, self.objective.as_ref(), arguments)
    }

    /// The first binding in which `now` differs from this, in the order in which they are told.
    pub fn first_difference(&self, now: &Self) -> Option<Binding> {
        let same = [
            (Binding::Principal, self.principal == now.principal),
            (Binding::Connector, self.connector == now.connector),
            (Binding::Action, self.action == now.action),
            (Binding::Conversation, self.conversation == now.conversation),
            (Binding::Agent, self.agent == now.agent),
            (Binding::Account, self.account == now.account),
            (Binding::Objective, self.objective == now.objective),
            // The fingerprint is what binds; the digest only tells which part of it changed.
            (Binding::Arguments, self.arguments_digest == now.arguments_digest && self.fingerprint == now.fingerprint),
            (Binding::ToolDefinition, self.tool_definition_digest == now.tool_definition_digest),
        ];
        same.into_iter().find(|(_, same)| !same).map(|(binding, _)| binding)
    }
}

/// What an approval is bound to, each compared when it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// On whose behalf.
    Principal,
    /// The integration.
    Connector,
    /// The operation.
    Action,
    /// The session.
    Conversation,
    /// The program that acts.
    Agent,
    /// The external identity.
    Account,
    /// What the agent works on.
    Objective,
    /// The arguments, all of them.
    Arguments,
    /// The tool's definition.
    ToolDefinition,
}

impl Binding {
    /// Every binding, in the order in which a difference is told.
    pub const ALL: [Self; 9] = [
        Self::Principal,
        Self::Connector,
        Self::Action,
        Self::Conversation,
        Self::Agent,
        Self::Account,
        Self::Objective,
        Self::Arguments,
        Self::ToolDefinition,
    ];

    /// The stable reason of a refusal because of it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Principal => "PRINCIPAL_MISMATCH",
            Self::Connector => "CONNECTOR_MISMATCH",
            Self::Action => "ACTION_MISMATCH",
            Self::Conversation => "CONVERSATION_MISMATCH",
            Self::Agent => "AGENT_MISMATCH",
            Self::Account => "ACCOUNT_MISMATCH",
            Self::Objective => "OBJECTIVE_CHANGED",
            Self::Arguments => "ARGUMENTS_CHANGED",
            Self::ToolDefinition => "TOOL_DEFINITION_CHANGED",
        }
    }

    /// What it is, in a sentence.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Connector => "connector",
            Self::Action => "action",
            Self::Conversation => "conversation",
            Self::Agent => "agent",
            Self::Account => "account",
            Self::Objective => "objective",
            Self::Arguments => "arguments",
            Self::ToolDefinition => "tool definition",
        }
    }
}

/// One intended call, with its arguments.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// All of it but the text of its arguments.
    pub subject: Subject,
    /// The arguments: canonical, and readable.
    pub arguments: Arguments,
}

/// What a caller says of an invocation beside its arguments.
#[derive(Clone, Debug)]
pub struct Said {
    /// On whose behalf the agent acts.
    pub principal: Identifier,
    /// The program that acts.
    pub agent: Identifier,
    /// The session.
    pub conversation: Option<Identifier>,
    /// The integration.
    pub connector: Identifier,
    /// The external identity.
    pub account: Option<Identifier>,
    /// One authorisation of the account.
    pub connection: Option<Identifier>,
    /// The operation.
    pub action: Identifier,
    /// What the agent is working on.
    pub objective: Option<Objective>,
    /// The tool's definition.
    pub tool_definition_digest: Option<DefinitionDigest>,
    /// For the audit alone.
    pub labels: BTreeMap<String, String>,
}

impl Said {
    /// The fingerprint of it and these arguments.
    pub fn fingerprint(&self, arguments: &Arguments) -> Fingerprint {
        fingerprint(self.account.as_ref(), &self.action, &self.connector, self.objective.as_ref(), arguments)
    }
}

impl Invocation {
    /// The invocation of what was said and these arguments, with its fingerprint.
    pub fn new(said: Said, arguments: Arguments) -> Self {
        let fingerprint = said.fingerprint(&arguments);
        let subject = Subject {
            principal: said.principal,
            agent: said.agent,
            conversation: said.conversation,
            connector: said.connector,
            account: said.account,
            connection: said.connection,
            action: said.action,
            objective: said.objective,
            fingerprint,
            arguments_digest: arguments.digest(),
            tool_definition_digest: said.tool_definition_digest,
            labels: said.labels,
        };
        Self { subject, arguments }
    }
}

fn fingerprint(
    account: Option<&Identifier>,
    action: &Identifier,
    connector: &Identifier,
    objective: Option<&Objective>,
    arguments: &Arguments,
) -> Fingerprint {
    Fingerprint::of(&FingerprintInput {
        account: account.map_or("", Identifier::as_str),
        action: action.as_str(),
        connector: connector.as_str(),
        objective: objective.map(|objective| ObjectiveRef {
            transcript: objective.transcript.as_str(),
            id: objective.id.as_str(),
            revision: objective.revision,
        }),
        arguments,
    })
}

#[cfg(test)]
mod tests;
