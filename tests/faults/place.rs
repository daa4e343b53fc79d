//! Sidecars on one database, whatever is done to either, and who calls them.

use crate::cluster::Cluster;
use crate::history::{Call, Fact, History, POLICY, Question};
use crate::process::calls::Told;
use crate::process::{Clients, Folder, Sidecar};
use crate::random::Random;
use countersign::app::{self, Running};
use countersign::clock::Clock;
use countersign::config::{Config, Overrides};
use countersign::proto::{Outcome, Verdict};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// What has to be over within a bound is over within this, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Between two attempts of the same.
pub const PAUSE: Duration = Duration::from_millis(20);
/// The one server secret of all sidecars.
const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";

/// Sidecars on one database.
pub struct Place {
    pub history: Arc<History>,
    pub callers: Arc<Callers>,
    seats: Mutex<Vec<Seat>>,
    /// The database's own URL, with nothing in between.
    url: Mutex<String>,
}

/// Clients of each sidecar. A sidecar that starts again has another address.
#[derive(Default)]
pub struct Callers(RwLock<Vec<Clients>>);

struct Seat {
    folder: Folder,
    process: Process,
}

enum Process {
    None,
    Own(Sidecar),
    Here(Box<Running>),
}

/// How a sidecar reaches the database.
pub struct Way {
    pub url: String,
    pub connections: u32,
    /// How long a statement may take.
    pub statement_timeout: &'static str,
    /// How often changes of others are looked for.
    pub poll_every: &'static str,
    /// Whether changes are told to others.
    pub notify: bool,
}

impl Way {
    pub fn to(url: impl Into<String>) -> Self {
        Self { url: url.into(), connections: 4, statement_timeout: "2s", poll_every: "100ms", notify: true }
    }

    /// One on which a statement may wait longer than the quick deadlines are away.
    pub fn patient(url: impl Into<String>) -> Self {
        Self { statement_timeout: "30s", ..Self::to(url) }
    }

    fn folder(&self) -> Folder {
        let tables = format!(
            "[store]\nsecret_file = \"shared.secret\"\nacquire_timeout = \"1s\"\nstatement_timeout = \"{}\"\n\
             [store.postgres]\nurl = \"{}\"\ntls = \"disable\"\nconnections = {}\npoll_every = \"{}\"\nnotify = {}\n\
             [sweeper]\nevery = \"200ms\"\n",
            self.statement_timeout, self.url, self.connections, self.poll_every, self.notify
        );
        let folder = Folder::new(POLICY, &tables);
        let path = folder.path().join("shared.secret");
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
        file.write_all(SECRET.as_bytes()).unwrap();
        folder
    }
}

impl Place {
    /// Nobody yet, on a database that may not have a schema.
    pub fn empty(url: String) -> Self {
        Self { history: Arc::default(), callers: Arc::default(), seats: Mutex::default(), url: Mutex::new(url) }
    }

    /// Two sidecars on the database of this cluster.
    pub fn of(cluster: &Cluster) -> Self {
        let place = Self::empty(cluster.url("postgres"));
        place.start(&[Way::to(cluster.url("postgres")), Way::to(cluster.tcp_url("postgres"))]);
        place
    }

    /// Starts one more for each of these, all at once.
    pub fn start(&self, ways: &[Way]) {
        blocking(|| {
            let folders: Vec<Folder> = ways.iter().map(Way::folder).collect();
            let starting: Vec<_> = folders.iter().map(Sidecar::begin).collect();
            let sidecars: Vec<Sidecar> = starting.into_iter().map(|starting| starting.serving()).collect();
            for (folder, sidecar) in folders.into_iter().zip(sidecars) {
                self.callers.0.write().unwrap().push(sidecar.clients());
                self.seats.lock().unwrap().push(Seat { folder, process: Process::Own(sidecar) });
            }
        });
    }

    /// Starts one more in this process, under a clock of its own.
    pub async fn start_here(&self, way: &Way, clock: Arc<dyn Clock>) {
        let folder = way.folder();
        let path = folder.path().join("countersign.toml");
        let config = Config::load(Some(&path), &Overrides::default()).unwrap();
        let running = app::start(&config, clock).await.unwrap();
        self.callers.0.write().unwrap().push(Clients::of(&running.address().to_string()));
        self.seats.lock().unwrap().push(Seat { folder, process: Process::Here(Box::new(running)) });
    }

    /// Kills one (`SIGKILL`).
    pub fn kill(&self, seat: usize) {
        if let Process::Own(sidecar) = &mut self.seats.lock().unwrap()[seat].process {
            sidecar.kill();
        }
    }

    /// Lets one stand still (`SIGSTOP`), or go on.
    pub fn pause(&self, seat: usize, paused: bool) {
        if let Process::Own(sidecar) = &self.seats.lock().unwrap()[seat].process {
            signal(sidecar.pid(), if paused { Signal::STOP } else { Signal::CONT });
        }
    }

    /// Starts one that was killed.
    pub fn restart(&self, seat: usize) {
        let mut seats = self.seats.lock().unwrap();
        seats[seat].process = Process::None;
        let sidecar = blocking(|| Sidecar::start(&seats[seat].folder));
        self.callers.0.write().unwrap()[seat] = sidecar.clients();
        seats[seat].process = Process::Own(sidecar);
    }

    /// From now on the database is this one.
    pub fn moved_to(&self, url: String) {
        *self.url.lock().unwrap() = url;
    }

    pub fn url(&self) -> String {
        self.url.lock().unwrap().clone()
    }

    pub fn sidecars(&self) -> usize {
        self.callers.count()
    }

    /// What every sidecar has logged last, where it is a process of its own.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for (number, seat) in self.seats.lock().unwrap().iter().enumerate() {
            if let Process::Own(sidecar) = &seat.process {
                let said = sidecar.said();
                let lines: Vec<&str> = said.lines().collect();
                let last = lines[lines.len().saturating_sub(15)..].join("\n  ");
                all.push_str(&format!("sidecar {number}:\n  {last}\n"));
            }
        }
        all
    }

    /// Waits until every sidecar, without anybody's help, brings a question from asking to its outcome.
    pub async fn serves_again(&self) {
        for seat in 0..self.sidecars() {
            let since = Instant::now();
            while !self.serves(seat).await {
                assert!(since.elapsed() < PATIENCE, "sidecar {seat} does not serve again:\n{}", self.logs());
                tokio::time::sleep(PAUSE).await;
            }
            println!("sidecar {seat} serves after {} ms", since.elapsed().as_millis());
        }
    }

    /// Brings one question through this sidecar from asking to its outcome; false where it does not answer.
    pub async fn serves(&self, seat: usize) -> bool {
        let mut question = self.history.question(&mut Random::from(7), false, false);
        let clients = self.callers.of(seat);
        let attempt = Uuid::new_v4().to_string();
        for call in
            [Call::Ask, Call::Decide(Verdict::Approve), Call::Consume(attempt), Call::Report(Outcome::Succeeded)]
        {
            let told = self.history.call(&question, call, seat, &clients).await;
            match told.done() {
                Some(fact) => question.learns(fact),
                None => return false,
            }
        }
        true
    }

    /// Asks every sidecar for the state of a few approvals. The history then has what they say.
    pub async fn reads_again(&self, random: &mut Random) {
        let asked = self.history.asked();
        for _ in 0..20.min(asked.len()) {
            let question = &asked[random.below(asked.len())];
            for seat in 0..self.sidecars() {
                self.callers.call(&self.history, question, Call::Read, seat).await;
            }
        }
    }

    /// Ends those that run in this process; the others end with this.
    pub async fn stop(&self) {
        let mut here = Vec::new();
        for seat in self.seats.lock().unwrap().iter_mut() {
            match std::mem::replace(&mut seat.process, Process::None) {
                Process::Here(running) => here.push(running),
                other => seat.process = other,
            }
        }
        for running in here {
            running.stop().await;
        }
    }
}

impl Question {
    /// Takes in what an answer says, for the calls to come.
    pub fn learns(&mut self, fact: &Fact) {
        match fact {
            Fact::Wait(wait) => self.wait = Some(wait.clone()),
            Fact::Asked { approval, token, .. } => self.asked = Some((approval.clone(), token.clone())),
            Fact::Permit(permit) => self.execution = Some(permit.execution_id.clone()),
            Fact::State(_) | Fact::Resumed | Fact::Closed | Fact::Reported(_) => {}
        }
    }
}

impl Callers {
    pub fn count(&self) -> usize {
        self.0.read().unwrap().len()
    }

    pub fn of(&self, seat: usize) -> Clients {
        self.0.read().unwrap()[seat].clone()
    }

    /// Calls until something is told: through this sidecar first, and where there is no answer, through the next one, with
    /// the same ids.
    pub async fn call(&self, history: &History, question: &Question, call: Call, first: usize) -> Told<Fact> {
        let since = Instant::now();
        let mut seat = first % self.count();
        loop {
            let told = history.call(question, call.clone(), seat, &self.of(seat)).await;
            let again = match &told {
                Told::Nothing => true,
                Told::Refused(reason) => matches!(reason.as_str(), "LOST_RACE" | "TOO_MANY_CALLS"),
                Told::NotTried | Told::Done(_) => false,
            };
            if !again {
                return told;
            }
            if since.elapsed() > PATIENCE {
                history.complain(format!("question {}: nobody answers {call:?}", question.number));
                return Told::Nothing;
            }
            tokio::time::sleep(PAUSE).await;
            seat = (seat + 1) % self.count();
        }
    }
}

/// Sends a process a signal; one that has ended in the meantime needs none.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process has an id");
    let _ = kill_process(pid, signal);
}

/// Does what keeps a thread, on one that runs futures.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}
