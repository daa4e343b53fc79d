//! Real sidecars on a real cluster, and everything that happens to either: processes are killed, connections are cut or hang,
//! clocks are wrong, statements wait too long. Meanwhile agents work through all of them at once, and what each was told is
//! held against what the tables say: nothing is used twice, nothing acknowledged is missing, nothing lives past its deadline,
//! and every sidecar serves again by itself.
//!
//! `COUNTERSIGN_TEST_SEED` repeats a run's choices (not its timing); `COUNTERSIGN_TEST_SECONDS` says how long faults are
//! mixed at random.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::indexing_slicing)]

mod check;
#[path = "../cluster/mod.rs"]
mod cluster;
mod connections;
mod failover;
mod history;
mod kills;
mod load;
mod locks;
mod mixed;
mod place;
#[path = "../process/mod.rs"]
mod process;
mod proxy;
#[path = "../random/mod.rs"]
mod random;
mod starts;
mod watches;

use cluster::Cluster;
use load::Load;
use place::{Place, blocking};
use random::Random;
use std::sync::Arc;

/// Calls that are answered before a fault, and after it.
const CALLS: usize = 100;

/// Runs a scenario on a runtime of its own.
fn run(scenario: impl AsyncFnOnce(&mut Random)) {
    let mut random = Random::seeded();
    println!("seed {}", random.seed());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    runtime.block_on(scenario(&mut random));
}

/// Two sidecars on a cluster of their own under load, and in the middle of it this happens; then all that must hold is held.
fn in_the_middle_of_load(fault: impl AsyncFnOnce(&Arc<Cluster>, &Place, &mut Random)) {
    run(async |random| {
        let cluster = Arc::new(blocking(Cluster::start));
        let place = Place::of(&cluster);
        let load = Load::on(&place, random);
        load.answers(CALLS).await;
        fault(&cluster, &place, random).await;
        holds(&place, load, random).await;
    });
}

/// Whatever has happened: every sidecar serves, work goes on and comes to its end, and no word was broken.
async fn holds(place: &Place, load: Load, random: &mut Random) {
    place.serves_again().await;
    load.answers(CALLS).await;
    load.ends().await;
    place.nothing_is_overdue().await;
    place.reads_again(random).await;
    place.check(random.seed()).await;
    let seen = place.history.seen();
    println!("{seen:?}");
    let telling = ["Ask", "Decide", "permits", "Report"];
    assert!(telling.iter().all(|what| seen.contains_key(*what)), "too little was done to show anything: {seen:?}");
    place.stop().await;
}
