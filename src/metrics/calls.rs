//! Calls: by method and code, how long they took, what is under way. The methods are those that the protos declare; every
//! other path is one label value, however a caller spells it.

use super::cells::{CALL_BOUNDS, Counter, Gauge, Histogram};
use super::reasons::REASONS;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Whatever is no method of ours.
pub(super) const UNKNOWN: &str = "unknown";
/// What is none of the stable reasons.
pub(super) const OTHER: &str = "OTHER";

/// The codes of gRPC, by number.
pub(super) const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
/// The number of `UNKNOWN`, which any other number counts as.
const CODE_UNKNOWN: usize = 2;

/// A method that is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Method {
    /// `package.Service/Method`.
    pub name: String,
    /// Whether it answers with a stream, whose length says nothing about how fast it was.
    pub streams: bool,
}

/// A method, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodId(usize);

/// One method's counts.
#[derive(Debug)]
pub(super) struct MethodCalls {
    pub(super) name: String,
    pub(super) streams: bool,
    pub(super) codes: [Counter; 17],
    pub(super) duration: Histogram,
    pub(super) open: Gauge,
}

impl MethodCalls {
    fn of(method: Method) -> Self {
        Self {
            name: method.name,
            streams: method.streams,
            codes: Default::default(),
            duration: Histogram::new(CALL_BOUNDS),
            open: Gauge::default(),
        }
    }
}

/// Every call.
#[derive(Debug)]
pub struct Calls {
    /// In the order of their names.
    known: Vec<MethodCalls>,
    unknown: MethodCalls,
    under_way: Arc<AtomicUsize>,
    refusals: Vec<Counter>,
    refusals_other: Counter,
}

impl Calls {
    pub(super) fn new(mut methods: Vec<Method>) -> Self {
        methods.sort();
        methods.dedup();
        Self {
            known: methods.into_iter().map(MethodCalls::of).collect(),
            unknown: MethodCalls::of(Method { name: UNKNOWN.to_owned(), streams: false }),
            under_way: Arc::default(),
            refusals: REASONS.iter().map(|_| Counter::default()).collect(),
            refusals_other: Counter::default(),
        }
    }

    /// The method of a request's path.
    pub fn method(&self, path: &str) -> MethodId {
        let found = path
            .strip_prefix('/')
            .and_then(|name| self.known.binary_search_by(|method| method.name.as_str().cmp(name)).ok());
        MethodId(found.unwrap_or(usize::MAX))
    }

    /// The name of a method: one of a few.
    pub fn name(&self, method: MethodId) -> &str {
        &self.of(method).name
    }

    /// Whether it answers with a stream.
    pub fn streams(&self, method: MethodId) -> bool {
        self.of(method).streams
    }

    /// How many calls have begun and have no answer yet.
    pub fn under_way(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.under_way)
    }

    pub(super) fn read_under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// A call ended with this code (gRPC's number), after so long. A stream that was open ends as well.
    pub fn ended(&self, method: MethodId, code: i32, took: Duration) {
        let method = self.of(method);
        let code = usize::try_from(code).ok().filter(|code| *code < CODES.len()).unwrap_or(CODE_UNKNOWN);
        if let Some(counter) = method.codes.get(code) {
            counter.one();
        }
        if !method.streams {
            method.duration.observe(took);
        }
    }

    /// A stream began; -1: ended.
    pub fn stream(&self, method: MethodId, more: i64) {
        self.of(method).open.add(more);
    }

    /// A call, or one of a batch, was refused for this stable reason.
    pub fn refused(&self, reason: &str) {
        let known = REASONS.binary_search(&reason).ok().and_then(|index| self.refusals.get(index));
        known.unwrap_or(&self.refusals_other).one();
    }

    fn of(&self, method: MethodId) -> &MethodCalls {
        self.known.get(method.0).unwrap_or(&self.unknown)
    }

    pub(super) fn methods(&self) -> impl Iterator<Item = &MethodCalls> {
        self.known.iter().chain([&self.unknown])
    }

    pub(super) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let known = REASONS.iter().copied().zip(self.refusals.iter().map(Counter::get));
        known.chain([(OTHER, self.refusals_other.get())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> Calls {
        let method = |name: &str| Method { name: name.to_owned(), streams: false };
        Calls::new(vec![method("b.B/Two"), method("a.A/One"), method("a.A/One")])
    }

    #[test]
    fn only_a_path_as_the_router_resolves_it_is_a_method() {
        let calls = calls();
        assert_eq!(calls.name(calls.method("/a.A/One")), "a.A/One");
        assert_eq!(calls.name(calls.method("/b.B/Two")), "b.B/Two");
        for path in ["", "/", "a.A/One", "//a.A/One", "/a.A/One/", "/a.a/one", "/unknown", "/a.A/One\0", "/\u{e9}"] {
            assert_eq!(calls.name(calls.method(path)), UNKNOWN, "{path:?}");
        }
    }

    #[test]
    fn a_code_that_is_none_counts_as_unknown() {
        let calls = calls();
        let method = calls.method("/a.A/One");
        for code in [-1, 17, i32::MAX, 2] {
            calls.ended(method, code, Duration::ZERO);
        }
        assert_eq!(calls.of(method).codes[CODE_UNKNOWN].get(), 4);
    }

    #[test]
    fn a_reason_that_is_none_of_ours_counts_all_the_same() {
        let calls = calls();
        calls.refused("POLICY_DENIED");
        calls.refused("whatever somebody says");
        let counted: Vec<_> = calls.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("POLICY_DENIED", 1), (OTHER, 1)]);
    }
}
