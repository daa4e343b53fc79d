//! Agents and their person at work, over all sidecars at once.

use crate::history::{Call, Fact, History, Question};
use crate::place::{Callers, PATIENCE, PAUSE, Place};
use crate::process::calls::Told;
use crate::random::Random;
use countersign::proto::{ApprovalState, Outcome, Verdict};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Agents at work at once, each on a question of its own.
const AGENTS: usize = 8;

/// Work that goes on until it is ended.
pub struct Load {
    history: Arc<History>,
    enough: Arc<AtomicBool>,
    agents: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn on(place: &Place, random: &mut Random) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let agents = (0..AGENTS)
            .map(|_| {
                let mut agent = Agent {
                    history: Arc::clone(&place.history),
                    callers: Arc::clone(&place.callers),
                    random: Random::from(random.next()),
                };
                let enough = Arc::clone(&enough);
                tokio::spawn(async move {
                    while !enough.load(Ordering::SeqCst) {
                        agent.lives_a_story().await;
                    }
                })
            })
            .collect();
        Self { history: Arc::clone(&place.history), enough, agents }
    }

    /// Waits until so many calls more have been answered.
    pub async fn answers(&self, more: usize) {
        let (until, since) = (self.history.answers() + more, Instant::now());
        while self.history.answers() < until {
            assert!(since.elapsed() < PATIENCE, "no answers come");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Lets every agent bring what it has begun to its end.
    pub async fn ends(self) {
        self.enough.store(true, Ordering::SeqCst);
        for agent in self.agents {
            agent.await.unwrap();
        }
    }
}

/// What an approval is met by once a person has approved.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    Cancel,
    Revoke,
    CloseWait,
    ResumeWait,
}

struct Agent {
    history: Arc<History>,
    callers: Arc<Callers>,
    random: Random,
}

impl Agent {
    /// One question, from asking to whatever it comes to.
    async fn lives_a_story(&mut self) {
        let then = match self.random.below(10) {
            0..=4 => Then::Nothing,
            5 => Then::Cancel,
            6 => Then::Revoke,
            7..=8 => Then::CloseWait,
            _ => Then::ResumeWait,
        };
        let in_wait = matches!(then, Then::CloseWait | Then::ResumeWait);
        let quick = self.random.below(3) == 0;
        let mut question = self.history.question(&mut self.random, quick, in_wait);
        let (one, other) = (self.random.below(self.callers.count()), self.random.below(1_000));
        if in_wait && !self.tell(&mut question, Call::OpenWait, one).await {
            return;
        }
        if !self.tell(&mut question, Call::Ask, one).await {
            return;
        }
        self.linger(quick).await;
        let approved = self.decides(&mut question, one + 1).await;
        self.linger(quick).await;
        if approved || self.random.below(3) == 0 {
            self.uses(&mut question, then, one, other).await;
        }
        if question.execution.is_some() {
            self.reports(&mut question, other).await;
        }
        // Whatever was told, every sidecar says the same from now on.
        let read = |seat| self.callers.call(&self.history, &question, Call::Read, seat);
        tokio::join!(read(one), read(one + 1));
    }

    /// A person decides, or two windows of the same person do, or the agent withdraws the question meanwhile.
    async fn decides(&mut self, question: &mut Question, seat: usize) -> bool {
        let one = Call::Decide(if self.random.below(8) == 0 { Verdict::Deny } else { Verdict::Approve });
        let other = match self.random.below(6) {
            0 => Some(Call::Decide(Verdict::Deny)),
            1 => Some(Call::Decide(Verdict::Approve)),
            2 if self.random.below(2) == 0 => Some(Call::Cancel),
            _ => None,
        };
        let told = match other {
            None => vec![self.callers.call(&self.history, question, one, seat).await],
            Some(other) => {
                let (told, second) = tokio::join!(
                    self.callers.call(&self.history, question, one, seat),
                    self.callers.call(&self.history, question, other, seat + 1)
                );
                vec![told, second]
            }
        };
        told.contains(&Told::Done(Fact::State(ApprovalState::Approved)))
    }

    /// Two attempts at once through two sidecars, or one attempt through both, while somebody thinks better of it.
    async fn uses(&mut self, question: &mut Question, then: Then, seat: usize, other: usize) {
        let attempt = Uuid::new_v4().to_string();
        let rival = if self.random.below(4) == 0 { attempt.clone() } else { Uuid::new_v4().to_string() };
        let against = match then {
            Then::Nothing => None,
            Then::Cancel => Some(Call::Cancel),
            Then::Revoke => Some(Call::Revoke),
            Then::CloseWait => Some(Call::CloseWait),
            Then::ResumeWait => Some(Call::ResumeWait(Uuid::new_v4().to_string())),
        };
        let meanwhile = async {
            if let Some(call) = against {
                self.callers.call(&self.history, question, call, other).await;
            }
        };
        let (first, second, ()) = tokio::join!(
            self.callers.call(&self.history, question, Call::Consume(attempt), seat),
            self.callers.call(&self.history, question, Call::Consume(rival), seat + 1),
            meanwhile
        );
        for told in [first, second] {
            told.done().into_iter().for_each(|fact| question.learns(fact));
        }
    }

    /// One outcome, or two that contradict each other.
    async fn reports(&mut self, question: &mut Question, seat: usize) {
        let outcome = if self.random.below(2) == 0 { Outcome::Succeeded } else { Outcome::Failed };
        let report = |outcome, seat| self.callers.call(&self.history, question, Call::Report(outcome), seat);
        if self.random.below(4) == 0 {
            tokio::join!(report(Outcome::Succeeded, seat), report(Outcome::Failed, seat + 1));
        } else {
            report(outcome, seat).await;
        }
    }

    async fn tell(&self, question: &mut Question, call: Call, seat: usize) -> bool {
        let told = self.callers.call(&self.history, question, call, seat).await;
        told.done().map(|fact| question.learns(fact)).is_some()
    }

    /// Lets a deadline come near, or pass.
    async fn linger(&mut self, quick: bool) {
        if quick && self.random.below(2) == 0 {
            tokio::time::sleep(Duration::from_millis(self.random.below(1_300) as u64)).await;
        }
    }
}
