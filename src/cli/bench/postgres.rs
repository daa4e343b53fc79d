//! What is measured on a Postgres server: many sidecars on one table.

use super::Plan;
use super::consume::{PATH, consume, start};
use super::load::{Caller, Sample};
use super::pgbench::Floor;
use super::process::Server as Sidecar;
use super::report::{Bound, Part, quantile};
use super::world::{Database, PASSWORD, PRINCIPAL, World};
use crate::client::{self, Bearer};
use crate::domain::execution::Start;
use crate::proto;
use crate::storage::postgres::{PostgresOptions, PostgresStore, Scratch};
use crate::storage::{Accepting, Store as _};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

/// Callers at once.
const TOGETHER: usize = 64;
/// Calls between two looks at how far it is.
const AT_ONCE: usize = 250;
/// Long enough for everything.
const NO_END: Duration = Duration::from_secs(600);
/// Rows that the floor updates.
const FLOOR_ROWS: usize = 100_000;
/// Of a million, in two minutes.
const SECONDS_PER_ROW: f64 = 120.0 / 1e6;

/// The server.
pub(super) struct Server {
    options: PostgresOptions,
}

impl Server {
    /// The server at `url`.
    pub(super) fn new(_: &World, url: &str) -> io::Result<Self> {
        let password = std::env::var(PASSWORD).ok().map(Zeroizing::new);
        let options = PostgresOptions { password, ..PostgresOptions::new(url) };
        options.check().map_err(io::Error::other)?;
        Ok(Self { options })
    }

    /// Runs `measure` with a database of its own, which is removed afterwards.
    fn with<T>(&self, world: &World, measure: impl FnOnce(&Scratch) -> io::Result<T>) -> io::Result<T> {
        let scratch = world.runtime.block_on(Scratch::make(&self.options)).map_err(io::Error::other)?;
        let measured = measure(&scratch);
        world.runtime.block_on(scratch.remove()).map_err(io::Error::other)?;
        measured
    }

    /// `Consume` through two sidecars, against the floor.
    pub(super) fn consume(&self, world: &World, plan: &Plan) -> io::Result<Part> {
        self.with(world, |scratch| {
            let rounds = plan.rounds as usize;
            let together = plan.count(12_000).next_multiple_of(2 * TOGETHER);
            let lone = plan.count(500);
            let each = together.saturating_add(lone);
            let database = world.filled(world.served(scratch.url())?, each.saturating_mul(rounds), true)?;
            let apart = plan.count(3_000);
            self.with(world, |scratch| {
                let bare = world.filled(world.served(scratch.url())?, apart.saturating_mul(rounds), true)?;
                world.runtime.block_on(scratch.fill_floor(&self.options, FLOOR_ROWS)).map_err(io::Error::other)?;
                let floor = Floor::new(scratch.url(), FLOOR_ROWS, world.folder())?;
                let mut part = Part::new("shared");
                let sidecars = [0, 1].map(|_| Sidecar::sidecar(&world.config(), &database.place));
                let sidecars: Vec<Sidecar> = sidecars.into_iter().collect::<io::Result<_>>()?;
                let messages = (0..database.copies.len())
                    .map(|number| consume(&database, number))
                    .collect::<io::Result<Vec<_>>>()?;
                let starts =
                    (0..bare.copies.len()).map(|number| start(&bare, number)).collect::<io::Result<Vec<_>>>()?;
                let ungrouped = Ungrouped::open(&PostgresOptions {
                    url: scratch.url().to_owned(),
                    connections: 16,
                    ..self.options.clone()
                })?;
                for (messages, starts) in messages.chunks_exact(each).zip(starts.chunks_exact(apart)) {
                    let (many, few) = messages.split_at(together);
                    let bare = floor.run(TOGETHER, plan.span)?;
                    let cpu = cpu(&sidecars)?;
                    let both = through_both(world, &sidecars, many)?;
                    let cpu = self::cpu(&sidecars)?.saturating_sub(cpu);
                    let alone = ungrouped.consume(starts)?;
                    let bare_alone = floor.run(1, plan.span)?;
                    let mut caller = caller(world, sidecars.first())?;
                    let one = caller.run(1, NO_END, few.iter().map(Vec::as_slice))?;
                    part.add("pgbench, 64 clients: rate", "updates/s", bare.rate());
                    part.add("pgbench, 1 client: p50", "us", bare_alone.latency_us(0.5));
                    part.add("pgbench, 1 client: p99", "us", bare_alone.latency_us(0.99));
                    part.add("consume, 64 callers over two: rate", "calls/s", both.rate());
                    let per_call = cpu.as_secs_f64() * 1e6 / f64::from(both.answered.max(1));
                    part.add("consume, 64 callers over two: CPU of the sidecars", "us/call", per_call);
                    part.add("consume, 64 callers over two: p50", "us", both.latency_us(0.5));
                    part.add("consume, 64 callers over two: p99", "us", both.latency_us(0.99));
                    part.add("in process, 64 at once, each by itself: rate", "calls/s", alone.rate());
                    part.add("consume, 1 caller: p50", "us", one.latency_us(0.5));
                    part.add("consume, 1 caller: p99", "us", one.latency_us(0.99));
                    let least = Bound::AtLeast(2.0);
                    part.hold("consume, 64 callers over two, to pgbench: rate", "", both.rate() / bare.rate(), least);
                    part.add("in process, each by itself, to pgbench: rate", "", alone.rate() / bare.rate());
                    let ratio = one.latency_us(0.99) / bare_alone.latency_us(0.99);
                    part.hold("consume, 1 caller, to pgbench: p99", "", ratio, Bound::AtMost(1.5));
                    part.add(
                        "consume, 1 caller, to pgbench: p50",
                        "",
                        one.latency_us(0.5) / bare_alone.latency_us(0.5),
                    );
                }
                ungrouped.close();
                Ok(part)
            })
        })
    }

    /// `Consume` through one of two sidecars while both write down that everything else has expired, once.
    pub(super) fn expire(&self, world: &World, plan: &Plan) -> io::Result<Part> {
        self.with(world, |scratch| {
            let quiet = plan.count(1_000);
            let meanwhile = plan.rows / 5;
            let database = world.filled(world.served(scratch.url())?, quiet.saturating_add(meanwhile), true)?;
            world.overdue(&database, plan.rows)?;
            let messages =
                (0..database.copies.len()).map(|number| consume(&database, number)).collect::<io::Result<Vec<_>>>()?;
            let (before, meanwhile) = messages.split_at(quiet);
            let mut part = Part::new("shared-expire");
            let sidecar = Sidecar::sidecar(&world.config_without_sweeps(), &database.place)?;
            let before = caller(world, Some(&sidecar))?.run(1, NO_END, before.iter().map(Vec::as_slice))?;
            drop(sidecar);

            let sidecars = [0, 1].map(|_| Sidecar::sidecar(&world.config(), &database.place));
            let sidecars: Vec<Sidecar> = sidecars.into_iter().collect::<io::Result<_>>()?;
            let mut caller = caller(world, sidecars.first())?;
            let (begun, mut sample) = (Instant::now(), Sample::default());
            let mut meanwhile = meanwhile.chunks(AT_ONCE);
            loop {
                let mut swept = 0;
                for sidecar in &sidecars {
                    swept += sidecar.counted("countersign_sweeper_rows_total{step=\"expired\"}")?;
                }
                if swept >= plan.rows as u64 {
                    break;
                }
                if begun.elapsed() > NO_END {
                    return Err(io::Error::other("what is overdue does not expire"));
                }
                match meanwhile.next() {
                    Some(messages) => sample.extend(caller.run(1, NO_END, messages.iter().map(Vec::as_slice))?),
                    None => std::thread::sleep(Duration::from_millis(10)),
                }
            }
            let elapsed = begun.elapsed();
            for (name, sample) in [("quiet", &before), ("meanwhile", &sample)] {
                part.add(format!("consume, 1 caller, {name}: p50"), "us", sample.latency_us(0.5));
                part.add(format!("consume, 1 caller, {name}: p99"), "us", sample.latency_us(0.99));
            }
            let ratio = sample.latency_us(0.99) / before.latency_us(0.99);
            part.hold("consume, 1 caller, meanwhile to quiet: p99", "", ratio, Bound::AtMost(2.0));
            let rows = plan.rows;
            // A pass begins within a second. At most some millions: far below where a double stops counting.
            #[allow(clippy::cast_precision_loss)]
            let within = (rows as f64 * SECONDS_PER_ROW).max(2.0);
            part.hold(format!("until {rows} rows are expired"), "s", elapsed.as_secs_f64(), Bound::AtMost(within));
            Ok(part)
        })
    }

    /// From a decision's answer through one sidecar until a watch through the other tells it.
    pub(super) fn watch(&self, world: &World, plan: &Plan) -> io::Result<Part> {
        let mut part = Part::new("shared-watch");
        let times = plan.count(100);
        for (notify, name, most) in [(true, "told", 0.1), (false, "looked for", 2.0)] {
            self.with(world, |scratch| {
                let database = world.filled(world.served(scratch.url())?, times, false)?;
                let config = world.config_that_notifies(notify);
                let sidecars = [0, 1].map(|_| Sidecar::sidecar(&config, &database.place));
                let sidecars: Vec<Sidecar> = sidecars.into_iter().collect::<io::Result<_>>()?;
                let mut seconds = world.runtime.block_on(watched(world, &sidecars, &database))?;
                let median = quantile(&mut seconds, 0.5);
                let longest = quantile(&mut seconds, 1.0);
                part.add(format!("a decision, {name}: median"), "s", median);
                part.add(format!("a decision, {name}: longest"), "s", longest);
                let (held, value) = if notify { ("median", median) } else { ("longest", longest) };
                part.hold(format!("a decision seen elsewhere, {name}: {held}"), "s", value, Bound::AtMost(most));
                Ok(())
            })?;
        }
        Ok(part)
    }
}

/// Decides on each approval through the first sidecar, and measures until a watch through the second has told it.
async fn watched(world: &World, sidecars: &[Sidecar], database: &Database) -> io::Result<Vec<f64>> {
    let [here, there] = sidecars else { return Err(io::ErrorKind::InvalidInput.into()) };
    let bearer = |token: &str| Bearer::new(token).ok_or(io::ErrorKind::InvalidInput);
    let channel = |sidecar: &Sidecar| client::channel(sidecar.address).map_err(io::Error::other);
    let mut approver = client::approver(channel(here)?, bearer(&world.approver_token)?);
    let mut agent = client::agent(channel(there)?, bearer(&world.agent_token)?);
    let subject = &database.template.question.subject;
    let mut seconds = Vec::new();
    for id in &database.copies {
        let request = proto::WatchApprovalRequest {
            approval_id: id.to_string(),
            principal: subject.principal.to_string(),
            agent: subject.agent.to_string(),
        };
        let mut watch = agent.watch_approval(request).await.map_err(io::Error::other)?.into_inner();
        watch.message().await.map_err(io::Error::other)?;
        let request = proto::DecideRequest {
            approval_id: id.to_string(),
            principal: PRINCIPAL.to_owned(),
            verdict: proto::Verdict::Approve.into(),
            ..proto::DecideRequest::default()
        };
        approver.decide(request).await.map_err(io::Error::other)?;
        let answered = Instant::now();
        watch.message().await.map_err(io::Error::other)?;
        seconds.push(answered.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

/// The CPU time of all of them.
fn cpu(sidecars: &[Sidecar]) -> io::Result<Duration> {
    sidecars.iter().try_fold(Duration::ZERO, |sum, sidecar| Ok(sum.saturating_add(sidecar.cpu()?)))
}

fn caller(world: &World, sidecar: Option<&Sidecar>) -> io::Result<Caller> {
    let sidecar = sidecar.ok_or(io::ErrorKind::InvalidInput)?;
    Caller::connect(sidecar.address, PATH, Some(&world.agent_token))
}

/// Half of the calls through each, with half of the callers.
fn through_both(world: &World, sidecars: &[Sidecar], messages: &[Vec<u8>]) -> io::Result<Sample> {
    let half = messages.len().div_ceil(sidecars.len().max(1)).max(1);
    let in_flight = (TOGETHER / sidecars.len().max(1)).max(1);
    let mut callers = sidecars.iter().map(|sidecar| caller(world, Some(sidecar))).collect::<io::Result<Vec<_>>>()?;
    let samples = std::thread::scope(|scope| {
        let runs: Vec<_> = callers
            .iter_mut()
            .zip(messages.chunks(half))
            .map(|(caller, half)| scope.spawn(|| caller.run(in_flight, NO_END, half.iter().map(Vec::as_slice))))
            .collect();
        runs.into_iter()
            .map(|run| run.join().unwrap_or_else(|_| Err(io::Error::other("the load ended"))))
            .collect::<io::Result<Vec<_>>>()
    })?;
    let mut both = Sample::default();
    for sample in samples {
        both.answered = both.answered.saturating_add(sample.answered);
        both.elapsed = both.elapsed.max(sample.elapsed);
        both.latencies.extend(sample.latencies);
    }
    Ok(both)
}

/// The store in this process, each call in a statement of its own.
struct Ungrouped {
    runtime: tokio::runtime::Runtime,
    store: Arc<PostgresStore>,
}

impl Ungrouped {
    fn open(options: &PostgresOptions) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let store = runtime.block_on(PostgresStore::open(options.clone())).map_err(io::Error::other)?;
        Ok(Self { runtime, store: Arc::new(store) })
    }

    fn consume(&self, starts: &[(Start, Accepting)]) -> io::Result<Sample> {
        self.runtime.block_on(async {
            let begin = Instant::now();
            let mut tasks = JoinSet::new();
            let share = starts.len().div_ceil(TOGETHER).max(1);
            for share in starts.chunks(share) {
                let (store, share) = (Arc::clone(&self.store), share.to_vec());
                tasks.spawn(async move {
                    let mut latencies = Vec::with_capacity(share.len());
                    for (start, accepting) in share {
                        let before = Instant::now();
                        let consumed = store.consume_alone(start, accepting).await.map_err(io::Error::other)?;
                        consumed.ok_or_else(|| io::Error::other("an approval was not consumed"))?;
                        latencies.push(before.elapsed());
                    }
                    Ok::<_, io::Error>(latencies)
                });
            }
            let mut sample = Sample::default();
            while let Some(done) = tasks.join_next().await {
                let latencies = done.map_err(io::Error::other)??;
                sample.answered = sample.answered.saturating_add(u32::try_from(latencies.len()).unwrap_or(0));
                sample.latencies.extend(latencies);
            }
            sample.elapsed = begin.elapsed();
            Ok(sample)
        })
    }

    fn close(self) {
        self.runtime.block_on(self.store.close());
    }
}
