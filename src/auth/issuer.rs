//! Issuers of tokens (OIDC): what their tokens must be, and the keys that they are verified with.

use super::jwks::{Algorithm, KeySet};
use crate::domain::text::Identifier;
use arc_swap::ArcSwapOption;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a configuration says of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerSettings {
    /// Its name in the configuration.
    pub name: Identifier,
    /// What `iss` must be, byte for byte.
    pub issuer: String,
    /// One of these must be in `aud`.
    pub audience: Vec<String>,
    /// How its tokens may be signed.
    pub algorithms: Vec<Algorithm>,
    /// What `typ` may be, without `application/` and whatever the case. None: `JWT`, `at+jwt`, or not said.
    pub types: Option<Vec<String>>,
    /// By how much clocks may differ.
    pub tolerance: Duration,
    /// The claim that lists a person's groups.
    pub groups_claim: Option<String>,
    /// Which of those stands for which group of the policy. No other counts.
    pub groups: BTreeMap<String, Identifier>,
    /// Where its keys are.
    pub source: KeySource,
    /// Keys are read again at least so often.
    pub refresh_at_least_every: Duration,
    /// However many ask, keys are fetched at most so often.
    pub refresh_at_most_every: Duration,
}

/// Where an issuer's keys are.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// At a URL.
    Url {
        /// The URL.
        url: String,
        /// The authorities that vouch for its server. None: those of the system.
        authorities: Option<PathBuf>,
    },
}

/// A URL may say more than where: it is not told.
impl fmt::Debug for KeySource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
            Self::Url { authorities, .. } => {
                formatter.debug_struct("Url").field("authorities", authorities).finish_non_exhaustive()
            }
        }
    }
}

/// An issuer, with the keys that it has at the moment.
#[derive(Debug)]
pub struct Issuer {
    settings: IssuerSettings,
    keys: Arc<IssuerKeys>,
}

impl Issuer {
    /// This issuer, with these keys to begin with.
    pub fn new(settings: IssuerSettings, keys: Option<KeySet>) -> Self {
        let held = IssuerKeys::default();
        if let Some(keys) = keys {
            held.replace(keys);
        }
        Self { settings, keys: Arc::new(held) }
    }

    /// What the configuration says of it.
    pub fn settings(&self) -> &IssuerSettings {
        &self.settings
    }

    /// Its keys.
    pub fn keys(&self) -> &Arc<IssuerKeys> {
        &self.keys
    }

    /// The same issuer, with the keys that `before` has had from the same place, unless it has its own already.
    pub(super) fn after(&self, before: Option<&Self>) -> Self {
        let same = before.filter(|before| before.settings.source == self.settings.source);
        let keys = match same {
            Some(before) if self.keys.set.load().is_none() => &before.keys,
            Some(_) | None => &self.keys,
        };
        Self { settings: self.settings.clone(), keys: Arc::clone(keys) }
    }
}

/// The keys of an issuer, which are replaced whole, and when they were asked for.
#[derive(Default)]
pub struct IssuerKeys {
    set: ArcSwapOption<KeySet>,
    generation: AtomicU64,
    wanted: AtomicBool,
    asking: Mutex<Asking>,
}

#[derive(Debug, Default)]
struct Asking {
    under_way: bool,
    /// When it last began, on the clock that never goes back.
    last: Option<Duration>,
}

impl fmt::Debug for IssuerKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IssuerKeys").field("set", &*self.set.load()).finish_non_exhaustive()
    }
}

impl IssuerKeys {
    /// The keys of this moment; none where none were ever had.
    pub fn now(&self) -> Option<Arc<KeySet>> {
        self.set.load_full()
    }

    /// Puts other keys in force. Whether they differ from those before.
    pub fn replace(&self, keys: KeySet) -> bool {
        let changed = self.set.load().as_ref().is_none_or(|held| held.digest() != keys.digest());
        if changed {
            self.set.store(Some(Arc::new(keys)));
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        changed
    }

    /// Which keys these are: another number with each change.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Has them asked for again, if the last time is long enough ago.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Whether they are to be asked for at `now`: because it is time, as they are every so often, or because somebody came with a key that is not known.
    /// Whoever is told so asks, and says [`IssuerKeys::asked`] when it is over.
    pub fn begin_asking(&self, settings: &IssuerSettings, every: Duration, now: Duration) -> bool {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let since = asking.last.map(|last| now.saturating_sub(last));
        let due = match since {
            None => true,
            Some(since) if self.wanted.load(Ordering::SeqCst) || self.set.load().is_none() => {
                since >= settings.refresh_at_most_every.min(every)
            }
            Some(since) => since >= every,
        };
        if !due || asking.under_way {
            return false;
        }
        *asking = Asking { under_way: true, last: Some(now) };
        // Whoever comes from here on may have a key that this answer does not have yet.
        self.wanted.store(false, Ordering::SeqCst);
        true
    }

    /// Asking is over, whatever came of it.
    pub fn asked(&self) {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).under_way = false;
    }
}
