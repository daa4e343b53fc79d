//! `Consume` while everything else expires, against `Consume` while nothing does.

use super::Plan;
use super::consume::{PATH, consume};
use super::load::{Caller, Sample};
use super::process::Server;
use super::report::{Bound, Part};
use super::world::World;
use std::io;
use std::time::{Duration, Instant};

/// Calls between two looks at how far it is.
const AT_ONCE: usize = 250;
/// Long enough for everything.
const NO_END: Duration = Duration::from_secs(600);
/// Of a million, in two minutes.
const SECONDS_PER_ROW: f64 = 120.0 / 1e6;
const MIB: f64 = 1024.0 * 1024.0;

/// Measures it, once: it takes as long as it takes.
pub(super) fn run(world: &World, plan: &Plan) -> io::Result<Part> {
    let quiet = plan.count(2_000);
    // One caller's calls for as long as it may take, at a rate that one caller does not reach.
    let meanwhile = plan.rows / 5;
    let database = world.database("expire.db", quiet.saturating_add(meanwhile), true)?;
    world.overdue(&database, plan.rows)?;
    let messages =
        (0..database.copies.len()).map(|number| consume(&database, number)).collect::<io::Result<Vec<_>>>()?;
    let (before, meanwhile) = messages.split_at(quiet);
    let mut part = Part::new("expire");

    let sidecar = Server::sidecar(&world.config_without_sweeps(), &database.place)?;
    let mut caller = Caller::connect(sidecar.address, PATH, Some(&world.agent_token))?;
    let before = caller.run(1, NO_END, before.iter().map(Vec::as_slice))?;
    drop((caller, sidecar));

    let sidecar = Server::sidecar(&world.config(), &database.place)?;
    let mut caller = Caller::connect(sidecar.address, PATH, Some(&world.agent_token))?;
    let mut memory: u64 = 0;
    let (mut begun, mut sample) = (None, Sample::default());
    let mut meanwhile = meanwhile.chunks(AT_ONCE);
    let elapsed = loop {
        let swept = sidecar.counted("countersign_sweeper_rows_total{step=\"expired\"}")?;
        memory = memory.max(sidecar.memory()?.resident);
        if swept >= plan.rows as u64 {
            break begun.map_or(Duration::ZERO, |begun: Instant| begun.elapsed());
        }
        let started = *begun.get_or_insert_with(Instant::now);
        if started.elapsed() > NO_END {
            return Err(io::Error::other("what is overdue does not expire"));
        }
        match meanwhile.next() {
            Some(messages) => sample.extend(caller.run(1, NO_END, messages.iter().map(Vec::as_slice))?),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let rows = plan.rows;
    for (name, sample) in [("quiet", &before), ("meanwhile", &sample)] {
        part.add(format!("consume, 1 caller, {name}: p50"), "us", sample.latency_us(0.5));
        part.add(format!("consume, 1 caller, {name}: p99"), "us", sample.latency_us(0.99));
    }
    part.add("consume, 1 caller, meanwhile", "calls", f64::from(sample.answered));
    let most = Bound::AtMost(2.0);
    part.hold(
        "consume, 1 caller, meanwhile to quiet: p99",
        "",
        sample.latency_us(0.99) / before.latency_us(0.99),
        most,
    );
    // A pass begins within a second.
    // At most some millions: far below where a double stops counting.
    #[allow(clippy::cast_precision_loss)]
    let within = (rows as f64 * SECONDS_PER_ROW).max(2.0);
    part.hold(format!("until {rows} rows are expired"), "s", elapsed.as_secs_f64(), Bound::AtMost(within));
    #[allow(clippy::cast_precision_loss)]
    part.hold("memory meanwhile", "MiB", memory as f64 / MIB, Bound::AtMost(64.0));
    Ok(part)
}
