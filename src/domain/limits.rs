//! Every limit that is not configurable, each with its reason.

use std::time::Duration;

/// An answer's cost grows with the batch, and a batch of a hundred is one screen of a plan.
pub const BATCH_ITEMS: usize = 100;

/// A person reads this much of somebody's own words; more belongs into the arguments.
pub const NOTE_CHARACTERS: usize = 500;

/// Labels join records to traces and tickets; they are not a second set of arguments.
pub const LABELS: usize = 16;
/// Enough for a dotted name.
pub const LABEL_NAME_BYTES: usize = 64;
/// Enough for a trace context or a URL's path.
pub const LABEL_VALUE_BYTES: usize = 256;

/// The largest integer up to which every integer is a double too: what JSON in every language can carry.
pub const MAX_REVISION: u64 = (1 << 53) - 1;

/// Rules of one connector. Each may apply to every call and be named in its answer; no person oversees more.
pub const RULES: usize = 500;
/// A requirement is for people to understand; more than sixteen clauses is nobody's intention.
pub const CLAUSES: usize = 16;
/// People that one clause can demand; bounds the matching of people to clauses.
pub const QUORUM: u32 = 32;
/// Members of all groups together, which bounds check 11 as well.
pub const GROUP_MEMBERS: usize = 10_000;

/// Problems of a refused policy that an operator is told; the log has all of them.
pub const RELOAD_PROBLEMS: usize = 20;
/// A problem is a sentence with a place in front of it.
pub const RELOAD_PROBLEM_BYTES: usize = 1_000;

/// Remote ids are short; some are URLs.
pub const REMOTE_REFERENCE_BYTES: usize = 512;
/// Error codes are words or numbers.
pub const ERROR_CODE_BYTES: usize = 128;
/// A line or two of what went wrong, not a log.
pub const OUTCOME_DETAIL_BYTES: usize = 2_000;
/// A call that ran longer than a day was not one call.
pub const OUTCOME_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// No question may stay open longer: what was true a week ago is not what a person would approve now.
pub const LONGEST_DEADLINE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Shorter than this nobody can decide, use or report.
pub const SHORTEST_DEADLINE: Duration = Duration::from_secs(1);

/// How long a wait lasts where its agent says nothing: people answer within a day, or what was asked is stale.
pub const WAIT_EXPIRES_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// What an answer about a wait tells of its approvals: as many as may be open for a principal by default.
pub const WAIT_APPROVALS: u32 = 100;

/// One screen of approvals, each of which may carry a preview.
pub const APPROVALS_PAGE: u32 = 100;
/// A page for a person to look through, or a program.
pub const EXECUTIONS_PAGE: u32 = 500;
/// Audit records are small and are read by programs.
pub const AUDIT_PAGE: u32 = 1_000;

/// Records of evaluations that wait to be written, which is what a crash may lose: a second or so of a busy agent.
pub const EVALUATIONS_WAITING: usize = 1_024;
/// Active waits of one principal and agent: one for each transcript in which the agent has stopped.
pub const WAITS_ACTIVE: u32 = 1_000;
/// Streams that watch, of all callers together: each costs some memory and a look at every change.
pub const WATCHERS: usize = 4_096;
/// The same of one caller: a chat backend with a stream for each of a thousand people.
pub const WATCHERS_PER_CALLER: usize = 1_024;
/// Approvals with which watching begins. No person works through more; a list has the rest, page by page.
pub const WATCH_SNAPSHOT: usize = 2_000;
/// Changes that wait for a watcher who does not take them, after which it is ended.
pub const WATCH_QUEUE: usize = 1_024;
/// What they may weigh together.
pub const WATCH_QUEUE_BYTES: usize = 1024 * 1024;

/// After so long without a call from anybody who may answer, and with a question as old, nobody watches: longer than a client
/// that lists every minute takes.
pub const UNWATCHED_AFTER: Duration = Duration::from_secs(2 * 60);

/// What the rows of a page may weigh together: clients take answers of 4 MiB unless they are told otherwise.
pub const PAGE_BYTES: usize = 3 * 1024 * 1024;
