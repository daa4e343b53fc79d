//! A permit as others read it: a JWT (RFC 7519), signed with Ed25519 (RFC 8037), that says which one call was let through, and
//! until when. Whoever holds a connector's credential checks it before it makes the call, without asking the sidecar.
//!
//! The claims are canonical JSON, so one set of claims has one text. A claim that says nothing is left out. What is read is
//! read strictly: one algorithm, one type, no member twice, no header that could change what the signature means.

mod refusal;

pub use refusal::PermitRefusal;

use super::canonical::{Canonical, Limits, Top, push_string};
use super::execution::Execution;
use super::fingerprint::{ArgumentsDigest, DefinitionDigest, Fingerprint};
use super::ids::{ApprovalId, AttemptId, ExecutionId};
use super::json::Json;
use super::text::Identifier;
use super::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The one algorithm.
pub const ALGORITHM: &str = "EdDSA";
/// The type in the header, which no other token has: neither passes for the other.
pub const TYPE: &str = "countersign-permit+jwt";
/// The most bytes of a permit. The longest identifiers, all of them escaped, make one of about half of it.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Clocks that differ by more are not in order.
pub const MAX_TOLERANCE: Duration = Duration::from_secs(5 * 60);
/// The issuer, where the configuration says nothing.
pub const DEFAULT_ISSUER: &str = "countersign";
/// The audience, where the configuration says nothing.
pub const DEFAULT_AUDIENCE: &str = "countersign-permit";

/// Every claim, in the order in which they are written, and whether every permit has it.
pub const CLAIMS: [(&str, bool); 18] = [
    ("account", false),
    ("action", true),
    ("agent", true),
    ("approval_id", false),
    ("args_sha256", true),
    ("attempt_id", true),
    ("aud", true),
    ("connector", true),
    ("conversation", false),
    ("exp", true),
    ("fingerprint", true),
    ("iat", true),
    ("idempotency_key", true),
    ("iss", true),
    ("jti", true),
    ("policy_revision", true),
    ("principal", true),
    ("tool_definition_digest", false),
];

/// Who issues permits, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitNames {
    /// The `iss` of every permit.
    pub issuer: Identifier,
    /// The `aud` of permits for connectors that have none of their own.
    pub audience: Identifier,
    /// The `aud` of permits for these connectors.
    pub audiences: BTreeMap<Identifier, Identifier>,
}

impl PermitNames {
    fn audience_of(&self, connector: &Identifier) -> &Identifier {
        self.audiences.get(connector).unwrap_or(&self.audience)
    }
}

/// What a permit says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `iss`: who issued it.
    pub issuer: Identifier,
    /// `aud`: who is to check it.
    pub audience: Identifier,
    /// `iat`: when the execution began, in whole seconds since the Unix epoch, rounded down.
    pub issued_at: i64,
    /// `exp`: from this second on it is worth nothing; `report_by`, rounded down.
    pub expires_at: i64,
    /// `jti`: the execution, which is this one use.
    pub execution: ExecutionId,
    /// On whose behalf.
    pub principal: Identifier,
    /// The program that acts.
    pub agent: Identifier,
    /// The session.
    pub conversation: Option<Identifier>,
    /// The integration.
    pub connector: Identifier,
    /// The external identity.
    pub account: Option<Identifier>,
    /// The operation.
    pub action: Identifier,
    /// SHA-256 over the canonical arguments.
    pub arguments_digest: ArgumentsDigest,
    /// SHA-256 over all that an approval covers.
    pub fingerprint: Fingerprint,
    /// The approval that was used up.
    pub approval: Option<ApprovalId>,
    /// The agent's id of this attempt.
    pub attempt: AttemptId,
    /// The key for the remote service.
    pub idempotency_key: String,
    /// The tool's definition.
    pub tool_definition_digest: Option<DefinitionDigest>,
    /// The policy that let it through.
    pub policy_revision: String,
}

/// What whoever checks a permit is about to do. What is none is not compared.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// Who must have issued it.
    pub issuer: &'a str,
    /// Who checks it.
    pub audience: &'a str,
    /// The arguments of the call.
    pub arguments: Option<ArgumentsDigest>,
    /// The connector.
    pub connector: Option<&'a str>,
    /// The account; empty: none.
    pub account: Option<&'a str>,
    /// The action.
    pub action: Option<&'a str>,
    /// The principal.
    pub principal: Option<&'a str>,
    /// The agent.
    pub agent: Option<&'a str>,
    /// The conversation; empty: none.
    pub conversation: Option<&'a str>,
    /// The time of whoever checks.
    pub now: Timestamp,
    /// How far the two clocks may be apart; at most [`MAX_TOLERANCE`] counts.
    pub tolerance: Duration,
}

impl Claims {
    /// What the permit of this execution says. Asked again it says the same, for as long as the names are the same.
    pub fn of(execution: &Execution, names: &PermitNames) -> Self {
        let subject = &execution.subject;
        Self {
            issuer: names.issuer.clone(),
            audience: names.audience_of(&subject.connector).clone(),
            issued_at: seconds(execution.start_time),
            expires_at: seconds(execution.report_by),
            execution: execution.id,
            principal: subject.principal.clone(),
            agent: subject.agent.clone(),
            conversation: subject.conversation.clone(),
            connector: subject.connector.clone(),
            account: subject.account.clone(),
            action: subject.action.clone(),
            arguments_digest: subject.arguments_digest,
            fingerprint: subject.fingerprint,
            approval: execution.approval,
            attempt: execution.attempt,
            idempotency_key: execution.idempotency_key.clone(),
            tool_definition_digest: subject.tool_definition_digest,
            policy_revision: execution.policy_revision.clone(),
        }
    }

    /// The claims in canonical JSON: the payload of the token.
    pub fn to_json(&self) -> String {
        let mut writer = Writer(String::with_capacity(1024));
        writer.optional("account", self.account.as_ref());
        writer.text("action", self.action.as_str());
        writer.text("agent", self.agent.as_str());
        writer.optional("approval_id", self.approval);
        writer.text("args_sha256", &self.arguments_digest.to_string());
        writer.text("attempt_id", &self.attempt.to_string());
        writer.text("aud", self.audience.as_str());
        writer.text("connector", self.connector.as_str());
        writer.optional("conversation", self.conversation.as_ref());
        writer.number("exp", self.expires_at);
        writer.text("fingerprint", &self.fingerprint.to_string());
        writer.number("iat", self.issued_at);
        writer.text("idempotency_key", &self.idempotency_key);
        writer.text("iss", self.issuer.as_str());
        writer.text("jti", &self.execution.to_string());
        writer.text("policy_revision", &self.policy_revision);
        writer.text("principal", self.principal.as_str());
        writer.optional("tool_definition_digest", self.tool_definition_digest);
        writer.0.push('}');
        writer.0
    }

    /// Reads what [`Claims::to_json`] writes, in whatever order. Claims that are not known are passed over: a later sidecar
    /// may say more.
    ///
    /// # Errors
    /// It is no JSON object, has a member twice, lacks a claim, or has one that no sidecar writes.
    pub fn parse(json: &str) -> Result<Self, PermitRefusal> {
        let json = object(json)?;
        let read = Members(&json);
        Ok(Self {
            issuer: read.needed("iss", identifier)?,
            audience: read.needed("aud", identifier)?,
            issued_at: read.seconds("iat")?,
            expires_at: read.seconds("exp")?,
            execution: read.needed("jti", ExecutionId::parse)?,
            principal: read.needed("principal", identifier)?,
            agent: read.needed("agent", identifier)?,
            conversation: read.optional("conversation", identifier)?,
            connector: read.needed("connector", identifier)?,
            account: read.optional("account", identifier)?,
            action: read.needed("action", identifier)?,
            arguments_digest: read.needed("args_sha256", |text| ArgumentsDigest::parse(text).ok())?,
            fingerprint: read.needed("fingerprint", |text| Fingerprint::parse(text).ok())?,
            approval: read.optional("approval_id", ApprovalId::parse)?,
            attempt: read.needed("attempt_id", AttemptId::parse)?,
            idempotency_key: read.needed("idempotency_key", not_empty)?,
            tool_definition_digest: read
                .optional("tool_definition_digest", |text| DefinitionDigest::parse(text).ok())?,
            policy_revision: read.needed("policy_revision", not_empty)?,
        })
    }

    /// Everything in which the permit is not for what is expected; nothing where it holds.
    pub fn check(&self, expected: &Expected<'_>) -> Vec<PermitRefusal> {
        let tolerance = i64::try_from(expected.tolerance.min(MAX_TOLERANCE).as_secs()).unwrap_or(0);
        let now = seconds(expected.now);
        let same = |claim: &Identifier, said: Option<&str>| said.is_none_or(|said| said == claim.as_str());
        let same_or_none = |claim: Option<&Identifier>, said: Option<&str>| {
            said.is_none_or(|said| said == claim.map_or("", Identifier::as_str))
        };
        let checks = [
            (PermitRefusal::IssuerMismatch, self.issuer.as_str() == expected.issuer),
            (PermitRefusal::AudienceMismatch, self.audience.as_str() == expected.audience),
            (PermitRefusal::NotYetValid, self.issued_at <= now.saturating_add(tolerance)),
            (PermitRefusal::Expired, now < self.expires_at.saturating_add(tolerance)),
            (PermitRefusal::PrincipalMismatch, same(&self.principal, expected.principal)),
            (PermitRefusal::ConnectorMismatch, same(&self.connector, expected.connector)),
            (PermitRefusal::ActionMismatch, same(&self.action, expected.action)),
            (PermitRefusal::ConversationMismatch, same_or_none(self.conversation.as_ref(), expected.conversation)),
            (PermitRefusal::AgentMismatch, same(&self.agent, expected.agent)),
            (PermitRefusal::AccountMismatch, same_or_none(self.account.as_ref(), expected.account)),
            (
                PermitRefusal::ArgumentsChanged,
                expected.arguments.is_none_or(|arguments| arguments == self.arguments_digest),
            ),
        ];
        checks.into_iter().filter_map(|(refusal, holds)| (!holds).then_some(refusal)).collect()
    }
}

/// A token taken apart, with nothing believed yet but its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The id of the key that is said to have signed it.
    pub key_id: String,
    /// What was signed.
    pub signed: &'a str,
    /// The signature.
    pub signature: [u8; 64],
    payload: &'a str,
}

impl<'a> Parts<'a> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// It has another form, algorithm or type than a permit has.
    pub fn of(token: &'a str) -> Result<Self, PermitRefusal> {
        let malformed = |what: &str| PermitRefusal::Malformed(what.to_owned());
        if token.len() > MAX_TOKEN_BYTES {
            return Err(PermitRefusal::Malformed(format!("it is longer than {MAX_TOKEN_BYTES} bytes")));
        }
        let form = || malformed("it has not three parts with points between them");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(form)?;
        let (header, payload) = signed.split_once('.').ok_or_else(form)?;
        if payload.contains('.') {
            return Err(form());
        }
        let header = object(&decoded(header)?)?;
        let header = Members(&header);
        if header.text("alg") != Some(ALGORITHM) {
            return Err(PermitRefusal::AlgorithmRefused);
        }
        if header.text("typ") != Some(TYPE) {
            return Err(PermitRefusal::TypeMismatch);
        }
        // `crit`, `b64`, `jku` and the like would change what is signed, or by whom.
        let known = |name: &str| ["alg", "kid", "typ"].contains(&name);
        if header.0.as_object().is_none_or(|members| members.iter().any(|(name, _)| !known(name))) {
            return Err(malformed("its header has members that no permit has"));
        }
        let key_id = header.text("kid").ok_or_else(|| malformed("its header names no key"))?.to_owned();
        let signature = bytes(signature).ok().and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        let signature = signature.ok_or_else(|| malformed("its signature is not 64 bytes"))?;
        Ok(Self { key_id, signed, signature, payload })
    }

    /// What it says; to be asked for once the signature is known to be genuine.
    ///
    /// # Errors
    /// It does not say what a permit says.
    pub fn claims(&self) -> Result<Claims, PermitRefusal> {
        Claims::parse(&decoded(self.payload)?)
    }
}

/// A part of a token: these bytes in base64url, without padding.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The header of tokens that the key of this id signs.
pub fn header(key_id: &str) -> String {
    let mut header = format!("{{\"alg\":\"{ALGORITHM}\",\"kid\":");
    push_string(key_id, &mut header);
    let _ = write!(header, ",\"typ\":\"{TYPE}\"}}");
    header
}

/// Reads base64url in the one way in which it can be written.
pub fn bytes(text: &str) -> Result<Vec<u8>, PermitRefusal> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| PermitRefusal::Malformed("a part of it is no base64url".to_owned()))
}

fn decoded(part: &str) -> Result<String, PermitRefusal> {
    String::from_utf8(bytes(part)?).map_err(|_| PermitRefusal::Malformed("a part of it is no UTF-8".to_owned()))
}

/// A JSON object without a second member of any name.
fn object(text: &str) -> Result<Json, PermitRefusal> {
    // Where an object is wanted, the empty text would be one.
    let limits = Limits { max_bytes: MAX_TOKEN_BYTES, top: Top::Any };
    let canonical = Canonical::of(text, limits).map_err(|refusal| PermitRefusal::Malformed(refusal.to_string()))?;
    let json = Json::read(&canonical);
    if json.as_object().is_none() {
        return Err(PermitRefusal::Malformed("a part of it is no JSON object".to_owned()));
    }
    Ok(json)
}

/// Rounded down, so that nothing ends later than it says.
fn seconds(time: Timestamp) -> i64 {
    time.micros().div_euclid(1_000_000)
}

fn identifier(text: &str) -> Option<Identifier> {
    Identifier::parse(text).ok()
}

fn not_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Writes an object, member by member.
struct Writer(String);

impl Writer {
    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        push_string(name, &mut self.0);
        self.0.push(':');
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        push_string(text, &mut self.0);
    }

    fn optional(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.text(name, &value.to_string());
        }
    }

    fn number(&mut self, name: &str, number: i64) {
        self.name(name);
        let _ = write!(self.0, "{number}");
    }
}

/// Reads the members of an object.
struct Members<'a>(&'a Json);

impl Members<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn needed<T>(&self, name: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, PermitRefusal> {
        self.optional(name, read)?.ok_or_else(|| PermitRefusal::Malformed(format!("it has no `{name}`")))
    }

    fn optional<T>(&self, name: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, PermitRefusal> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let value = value.as_str().and_then(read);
        value.map(Some).ok_or_else(|| PermitRefusal::Malformed(format!("its `{name}` is none that a sidecar writes")))
    }

    fn seconds(&self, name: &str) -> Result<i64, PermitRefusal> {
        let number = match self.0.get(name) {
            Some(Json::Number(number)) => number.as_i64(),
            _ => None,
        };
        number.ok_or_else(|| PermitRefusal::Malformed(format!("it has no `{name}` in whole seconds")))
    }
}

#[cfg(test)]
mod tests;
