//! The callers in force, shared by every door and swapped whole when the configuration is read again; and the credential
//! that a call came with, which says when it no longer opens its door.

use super::callers::Found;
use super::usage::{LimitReached, Place};
use super::{AuthError, Caller, Callers, Presented, Role};
use crate::clock::Clock;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use arc_swap::ArcSwap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// The callers in force. Clones share them.
#[derive(Clone)]
pub struct SharedCallers(Arc<Shared>);

struct Shared {
    callers: ArcSwap<Callers>,
    clock: Arc<dyn Clock>,
    /// How many had expired when it was last looked.
    expired: AtomicUsize,
    /// Who waits for the end of a credential that may end by itself: a certificate, a token of an issuer.
    waiting: AtomicUsize,
    /// Sent whenever a credential may have ended.
    changed: watch::Sender<()>,
}

impl fmt::Debug for SharedCallers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SharedCallers").field(&self.0.callers.load()).finish()
    }
}

impl SharedCallers {
    /// These callers, whose credentials expire by the wall clock of `clock`.
    pub fn new(callers: Callers, clock: Arc<dyn Clock>) -> Self {
        let expired = AtomicUsize::new(callers.expired(clock.wall()).count());
        Self(Arc::new(Shared {
            callers: ArcSwap::from_pointee(callers),
            clock,
            expired,
            waiting: AtomicUsize::new(0),
            changed: watch::Sender::new(()),
        }))
    }

    /// The callers of this moment.
    pub fn now(&self) -> Arc<Callers> {
        self.0.callers.load_full()
    }

    /// Those whose credentials have expired.
    pub fn expired(&self) -> Vec<Arc<Caller>> {
        self.now().expired(self.0.clock.wall()).cloned().collect()
    }

    /// Puts other callers in force, for every call that begins from now on, and ends the credentials that no longer open
    /// the same door with the same powers.
    pub fn replace(&self, callers: Callers) {
        let callers = callers.after(&self.0.callers.load());
        self.0.expired.store(callers.expired(self.0.clock.wall()).count(), Ordering::SeqCst);
        self.0.callers.store(Arc::new(callers));
        self.0.changed.send_replace(());
    }

    /// Ends the credentials that have expired since this was last called. To be called every now and then: one timer
    /// serves all who wait.
    pub fn end_expired(&self) {
        let expired = self.0.callers.load().expired(self.0.clock.wall()).count();
        let others = self.0.waiting.load(Ordering::SeqCst) > 0;
        if self.0.expired.swap(expired, Ordering::SeqCst) != expired || others {
            self.0.changed.send_replace(());
        }
    }

    /// The clock that the callers go by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// The credential of a call with which this came, if its caller has the role `needs`.
    ///
    /// # Errors
    /// There is no credential; it is nobody's, or more than one caller's; it is no longer good; the caller has another role.
    pub fn authenticate(&self, presented: Presented<'_>, needs: Role) -> Result<Credential, AuthError> {
        let found = self.0.callers.load().find(presented, &|| self.0.clock.wall())?;
        let has = found.caller.powers.role();
        if has == needs {
            Ok(Credential { shared: self.clone(), found })
        } else {
            Err(AuthError::WrongRole { has, needs })
        }
    }
}

/// What a call was let in with. A stream, which outlives the moment of the check, ends when this ends.
#[derive(Clone)]
pub struct Credential {
    shared: SharedCallers,
    found: Found,
}

/// The caller alone.
impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credential").field("caller", &self.found.caller).finish_non_exhaustive()
    }
}

impl Credential {
    /// Whose it is.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.found.caller
    }

    /// The groups of the policy that its person is in by the word of the token's issuer, sorted.
    pub fn groups(&self) -> &Arc<[Identifier]> {
        &self.found.groups
    }

    /// A place for a call of its caller.
    ///
    /// # Errors
    /// The caller does too much at once, or too fast.
    pub fn call(&self) -> Result<Place, LimitReached> {
        self.found.entry.usage.call(&self.found.entry.limits, self.shared.0.clock.as_ref())
    }

    /// A place for a stream of its caller.
    ///
    /// # Errors
    /// The caller has too many open.
    pub fn stream(&self) -> Result<Place, LimitReached> {
        self.found.entry.usage.stream(&self.found.entry.limits)
    }

    /// Whether it still opens the same door, for the same caller, with the same powers.
    pub fn is_good(&self) -> bool {
        let shared = &self.shared.0;
        let wall = || -> Timestamp { shared.clock.wall() };
        let again = shared.callers.load().again(&self.found.proof, &wall);
        again.is_ok_and(|now| now.caller == self.found.caller && now.groups == self.found.groups)
    }

    /// Waits until it is no longer good: it was removed, has expired, or its caller has another name, role or powers.
    /// Expiry is seen when [`SharedCallers::end_expired`] looks, which a running sidecar does twice a second. Whoever ends a
    /// stream for it has the client call again: that call is told what has become of the credential.
    pub async fn ended(&self) {
        let mut changed = self.shared.0.changed.subscribe();
        let _waiting = self.found.proof.ends_by_itself().then(|| Waiting::one_of(&self.shared.0));
        // What was sent before is of no matter: whether it is good is asked after subscribing.
        while self.is_good() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

/// One that waits; over when dropped.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn one_of(shared: &'a Shared) -> Self {
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::TokenHash;
    use super::super::{AgentBounds, Authorization, NewCaller, Powers};
    use super::*;
    use crate::clock::ManualClock;
    use crate::domain::pattern::Pattern;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    const NOON: Timestamp = Timestamp::from_micros(1_767_268_800_000_000);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn agent(principals: &[&str]) -> Powers {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text)).collect();
        Powers::Agent(Arc::new(AgentBounds { agents: patterns(&["*"]), principals: patterns(principals) }))
    }

    fn caller(token: &str, name: &str, powers: Powers, expires: Option<Timestamp>) -> NewCaller {
        let caller = Caller { name: Identifier::parse(name).unwrap(), powers };
        NewCaller { expires, ..NewCaller::bearer(TokenHash::of(token.as_bytes()), caller) }
    }

    fn runtime() -> NewCaller {
        caller("agent-token", "runtime", agent(&["*"]), None)
    }

    fn shared(callers: Vec<NewCaller>) -> (SharedCallers, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(NOON));
        (SharedCallers::new(Callers::expiring(callers), Arc::<ManualClock>::clone(&clock)), clock)
    }

    fn enter(callers: &SharedCallers) -> Result<Credential, AuthError> {
        enter_as(callers, Role::Agent)
    }

    fn enter_as(callers: &SharedCallers, role: Role) -> Result<Credential, AuthError> {
        let authorization = Authorization::One(b"Bearer agent-token");
        callers.authenticate(Presented { authorization, peer: None }, role)
    }

    /// Whether it has ended by now, without waiting; asked of one and the same wait again and again.
    macro_rules! has_ended {
        ($wait:expr) => {
            $wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
    }

    #[test]
    fn a_credential_ends_when_it_is_removed_renamed_or_opens_something_else() {
        let others = [
            ("removed", vec![caller("another-token", "runtime", agent(&["*"]), None)]),
            ("nobody left", vec![]),
            ("narrower", vec![caller("agent-token", "runtime", agent(&["olga"]), None)]),
            ("wider", vec![caller("agent-token", "runtime", agent(&["*", "olga"]), None)]),
            ("another role", vec![caller("agent-token", "runtime", Powers::Operator, None)]),
            ("another name", vec![caller("agent-token", "other", agent(&["*"]), None)]),
            ("expired", vec![caller("agent-token", "runtime", agent(&["*"]), Some(NOON))]),
        ];
        for (what, callers) in others {
            let (shared, _) = shared(vec![runtime()]);
            let credential = enter(&shared).unwrap();
            let mut wait = pin!(credential.ended());
            assert!(!has_ended!(wait), "{what}");
            shared.replace(Callers::expiring(callers));
            assert!(has_ended!(wait) && !credential.is_good(), "{what}");
        }
    }

    #[test]
    fn a_credential_that_is_still_there_outlives_any_number_of_reloads() {
        let (shared, _) = shared(vec![runtime()]);
        let credential = enter(&shared).unwrap();
        let mut wait = pin!(credential.ended());
        for callers in [
            vec![runtime()],
            vec![caller("another", "ops", Powers::Operator, None), runtime()],
            vec![caller("agent-token", "runtime", agent(&["*"]), Some(NOON.plus(HOUR)))],
        ] {
            shared.replace(Callers::expiring(callers));
            assert!(!has_ended!(wait));
        }
        // Removed and put back in between two looks: it opens the same door.
        shared.replace(Callers::default());
        shared.replace(Callers::expiring(vec![runtime()]));
        assert!(!has_ended!(wait));
    }

    #[test]
    fn what_ended_before_it_was_waited_for_has_ended() {
        let (shared, _) = shared(vec![runtime()]);
        let credential = enter(&shared).unwrap();
        shared.replace(Callers::default());
        assert!(has_ended!(pin!(credential.ended())));
        assert_eq!(enter(&shared).err(), Some(AuthError::Invalid));
    }

    #[test]
    fn a_credential_expires_at_its_instant_and_not_before() {
        let (shared, clock) = shared(vec![caller("agent-token", "runtime", agent(&["*"]), Some(NOON.plus(HOUR)))]);
        let credential = enter(&shared).unwrap();
        let mut wait = pin!(credential.ended());
        clock.advance(HOUR - Duration::from_micros(1));
        shared.end_expired();
        assert!(!has_ended!(wait) && enter(&shared).is_ok());
        clock.advance(Duration::from_micros(1));
        assert_eq!(enter(&shared).err(), Some(AuthError::Expired), "before anybody looked");
        shared.end_expired();
        assert!(has_ended!(wait));
        let operator = enter_as(&shared, Role::Operator);
        assert_eq!(operator.err(), Some(AuthError::Expired), "an expired credential says nothing of its role");
        assert_eq!(shared.expired().len(), 1);
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let (shared, _) = shared(vec![runtime()]);
        let credential = enter(&shared).unwrap();
        let waiting = tokio::spawn(async move { credential.ended().await });
        tokio::task::yield_now().await;
        shared.replace(Callers::default());
        waiting.await.unwrap();
    }

    #[test]
    fn nothing_shows_a_token_or_its_hash() {
        let (shared, _) = shared(vec![runtime()]);
        let hash = TokenHash::of(b"agent-token").to_string();
        let shown = format!("{shared:?} {:?}", enter(&shared).unwrap());
        assert!(!shown.contains(&hash) && shown.contains("runtime"), "{shown}");
    }
}
