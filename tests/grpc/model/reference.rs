//! What the sidecar should do, said again in the plainest way: vectors, one clock, no table, no bindings, no concurrency.
//! Times are microseconds.

use countersign::proto::{ApprovalState, Outcome, Verdict};

pub const MINUTE: i64 = 60 * 1_000_000;
/// The policy's defaults.
const DECIDE_WITHIN: i64 = 10 * MINUTE;
const USE_WITHIN: i64 = 10 * MINUTE;
const REPORT_WITHIN: i64 = 5 * MINUTE;

/// The owner, who confirms everything.
pub const OWNER: &str = "olga";
/// Of whom two confirm a deletion beside the owner.
pub const FINANCE: [&str; 3] = ["dana", "eve", "finn"];
/// Who has no part in anything.
pub const STRANGER: &str = "sam";

/// Which question: what is done, in which conversation, with which arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whether it is the deletion, which asks finance as well.
    pub deletes: bool,
    pub conversation: usize,
    pub arguments: usize,
}

/// One approval.
#[derive(Clone, Debug)]
pub struct Approval {
    pub call: Call,
    /// Where it stands, if no deadline has passed since.
    state: ApprovalState,
    decide_by: i64,
    use_by: i64,
    /// Each person's last word.
    votes: Vec<(&'static str, Verdict)>,
    revoked_by: &'static str,
    pub execution: Option<usize>,
    pub version: u64,
}

/// One execution.
#[derive(Clone, Debug)]
pub struct Execution {
    /// None: it needed no approval.
    pub approval: Option<usize>,
    pub call: Option<Call>,
    attempt: usize,
    report_by: i64,
    outcome: Option<Outcome>,
    /// Whether somebody said so, and not the deadline.
    reported: bool,
}

/// What a command answers: something, or the stable reason of its refusal.
pub type Answer<T> = Result<T, String>;

/// The whole of it.
#[derive(Default, Debug)]
pub struct Reference {
    pub now: i64,
    pub approvals: Vec<Approval>,
    pub executions: Vec<Execution>,
    requests: Vec<(usize, Call, usize)>,
}

impl Approval {
    /// Where it stands at `now`.
    pub fn state(&self, now: i64) -> ApprovalState {
        match self.state {
            ApprovalState::Pending if now >= self.decide_by => ApprovalState::Expired,
            ApprovalState::Approved if now >= self.use_by => ApprovalState::Expired,
            state => state,
        }
    }

    fn is_met(&self) -> bool {
        let approves = |person: &str| self.votes.iter().any(|(who, what)| *who == person && *what == Verdict::Approve);
        let finance = FINANCE.iter().filter(|person| approves(person)).count();
        approves(OWNER) && (!self.call.deletes || finance >= 2)
    }

    fn is_seen_by(&self, person: &str) -> bool {
        person == OWNER || (self.call.deletes && FINANCE.contains(&person))
    }

    fn refusal(&self, now: i64) -> String {
        format!("APPROVAL_{}", self.state(now).as_str_name().trim_start_matches("APPROVAL_STATE_"))
    }
}

impl Reference {
    /// The approval of the question, and whether it had been asked before.
    pub fn request(&mut self, call: Call, request_id: Option<usize>) -> Answer<(usize, bool)> {
        if let Some(id) = request_id
            && let Some((_, asked, approval)) = self.requests.iter().find(|(known, ..)| *known == id)
        {
            return if *asked == call { Ok((*approval, true)) } else { Err("REQUEST_ID_REUSED".to_owned()) };
        }
        let now = self.now;
        let is_open = |approval: &Approval| {
            approval.call == call && matches!(approval.state(now), ApprovalState::Pending | ApprovalState::Approved)
        };
        let (approval, existing) = match self.approvals.iter().position(is_open) {
            Some(open) => (open, true),
            None => {
                self.approvals.push(Approval {
                    call,
                    state: ApprovalState::Pending,
                    decide_by: now + DECIDE_WITHIN,
                    use_by: i64::MAX,
                    votes: Vec::new(),
                    revoked_by: "",
                    execution: None,
                    version: 1,
                });
                (self.approvals.len() - 1, false)
            }
        };
        if let Some(id) = request_id {
            self.requests.push((id, call, approval));
        }
        Ok((approval, existing))
    }

    pub fn decide(&mut self, approval: usize, person: &'static str, verdict: Verdict) -> Answer<()> {
        let now = self.now;
        let approval = &mut self.approvals[approval];
        if !approval.is_seen_by(person) {
            return Err("APPROVAL_NOT_FOUND".to_owned());
        }
        if approval.votes.contains(&(person, verdict)) {
            return Ok(());
        }
        if approval.state(now) != ApprovalState::Pending {
            return Err(approval.refusal(now));
        }
        approval.votes.retain(|(who, _)| *who != person);
        approval.votes.push((person, verdict));
        approval.version += 1;
        if verdict == Verdict::Deny {
            approval.state = ApprovalState::Denied;
        } else if approval.is_met() {
            approval.state = ApprovalState::Approved;
            approval.use_by = now + USE_WITHIN;
        }
        Ok(())
    }

    pub fn cancel(&mut self, approval: usize) -> Answer<()> {
        let now = self.now;
        let approval = &mut self.approvals[approval];
        match approval.state(now) {
            ApprovalState::Pending | ApprovalState::Approved => {
                approval.state = ApprovalState::Cancelled;
                approval.version += 1;
                Ok(())
            }
            ApprovalState::Cancelled => Ok(()),
            _ => Err(approval.refusal(now)),
        }
    }

    pub fn revoke(&mut self, approval: usize, person: &'static str) -> Answer<()> {
        let now = self.now;
        let approval = &mut self.approvals[approval];
        if !approval.is_seen_by(person) {
            return Err("APPROVAL_NOT_FOUND".to_owned());
        }
        match approval.state(now) {
            ApprovalState::Approved => {
                approval.state = ApprovalState::Revoked;
                approval.revoked_by = person;
                approval.version += 1;
                Ok(())
            }
            ApprovalState::Revoked if approval.revoked_by == person => Ok(()),
            _ => Err(approval.refusal(now)),
        }
    }

    /// The execution that the attempt started, and whether it had before. Without an approval the call is allowed as it is.
    pub fn consume(&mut self, approval: Option<usize>, call: Option<Call>, attempt: usize) -> Answer<(usize, bool)> {
        let now = self.now;
        if let (Some(approval), Some(call)) = (approval, call) {
            let asked = self.approvals[approval].call;
            // In this order the differences are told.
            if asked.deletes != call.deletes {
                return Err("ACTION_MISMATCH".to_owned());
            }
            if asked.conversation != call.conversation {
                return Err("CONVERSATION_MISMATCH".to_owned());
            }
            if asked.arguments != call.arguments {
                return Err("ARGUMENTS_CHANGED".to_owned());
            }
        }
        if let Some(known) = self.executions.iter().position(|execution| execution.attempt == attempt) {
            let execution = &self.executions[known];
            if execution.approval != approval || execution.call != call {
                return Err("ATTEMPT_ID_REUSED".to_owned());
            }
            let open = execution.outcome.is_none() && now < execution.report_by;
            return if open { Ok((known, true)) } else { Err("ATTEMPT_OVER".to_owned()) };
        }
        if let Some(approval) = approval {
            let next = self.executions.len();
            let approval = &mut self.approvals[approval];
            if approval.state(now) != ApprovalState::Approved {
                return Err(approval.refusal(now));
            }
            approval.state = ApprovalState::Consumed;
            approval.execution = Some(next);
            approval.version += 1;
        }
        let report_by = now + REPORT_WITHIN;
        self.executions.push(Execution { approval, call, attempt, report_by, outcome: None, reported: false });
        Ok((self.executions.len() - 1, false))
    }

    /// How an execution was started.
    pub fn attempt(&self, execution: usize) -> (Option<usize>, Option<Call>, usize) {
        let execution = &self.executions[execution];
        (execution.approval, execution.call, execution.attempt)
    }

    /// Every deadline that still means something.
    pub fn deadlines(&self) -> impl Iterator<Item = i64> {
        let approvals = self.approvals.iter().filter_map(|approval| match approval.state(self.now) {
            ApprovalState::Pending => Some(approval.decide_by),
            ApprovalState::Approved => Some(approval.use_by),
            _ => None,
        });
        let started = self.executions.iter().filter(|execution| execution.outcome.is_none());
        approvals.chain(started.map(|execution| execution.report_by))
    }

    pub fn report(&mut self, execution: usize, outcome: Outcome, with_evidence: bool) -> Answer<Outcome> {
        let now = self.now;
        let execution = &mut self.executions[execution];
        let known = execution.outcome(now);
        match known {
            Some(known) if known == outcome && (execution.reported || known != Outcome::Unknown) => return Ok(known),
            None | Some(Outcome::Unknown) => {}
            Some(_) => return Err("OUTCOME_FINAL".to_owned()),
        }
        if known == Some(Outcome::Unknown) && outcome != Outcome::Unknown && !with_evidence {
            return Err("OUTCOME_EVIDENCE_MISSING".to_owned());
        }
        execution.outcome = Some(outcome);
        execution.reported = true;
        Ok(outcome)
    }
}

impl Execution {
    /// What is known of it at `now`; none while it is under way.
    pub fn outcome(&self, now: i64) -> Option<Outcome> {
        self.outcome.or_else(|| (now >= self.report_by).then_some(Outcome::Unknown))
    }
}
