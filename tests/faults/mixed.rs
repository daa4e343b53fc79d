//! Faults of every kind, picked at random, one after the other and over each other.

use crate::cluster::Cluster;
use crate::load::Load;
use crate::place::{Place, Way, blocking, signal};
use crate::proxy::Proxy;
use crate::watches::Watchers;
use crate::{CALLS, holds, run};
use rustix::process::Signal;
use sqlx::{AssertSqlSafe, query, query_scalar, raw_sql};
use std::time::{Duration, Instant};

/// How long faults are mixed where nothing is said, in seconds.
const SECONDS: u64 = 10;
/// How long work goes on between two faults.
const APART: usize = 30;

#[test]
fn whatever_happens_in_whatever_order_nothing_told_is_contradicted() {
    run(async |random| {
        let seconds = std::env::var("COUNTERSIGN_TEST_SECONDS").map_or(SECONDS, |text| text.parse().expect("seconds"));
        let until = Instant::now() + Duration::from_secs(seconds);
        let cluster = blocking(Cluster::start);
        let proxies = [Proxy::to(cluster.port()).await, Proxy::to(cluster.port()).await];
        let place = Place::empty(cluster.url("postgres"));
        place.start(&[Way::to(proxies[0].url()), Way::to(proxies[1].url())]);
        let load = Load::on(&place, random);
        let watchers = Watchers::on(&place);
        let mut faults = 0;
        while Instant::now() < until {
            load.answers(APART).await;
            let (seat, pause) = (random.below(2), Duration::from_millis(random.below(1_500) as u64));
            faults += 1;
            match random.below(11) {
                0 | 1 => {
                    place.kill(seat);
                    place.restart(seat);
                }
                2 | 3 => proxies[seat].cut(),
                4 => {
                    proxies[seat].silent(true);
                    tokio::time::sleep(pause * 4).await;
                    proxies[seat].silent(false);
                }
                5 => {
                    blocking(|| cluster.stop_immediate());
                    tokio::time::sleep(pause).await;
                    blocking(|| cluster.start_again());
                }
                6 => {
                    let pids = crate::kills::backends(&place).await;
                    if !pids.is_empty() {
                        cluster.kill_backend(pids[random.below(pids.len())]);
                    }
                }
                7 => {
                    let mut connection = place.connection().await;
                    for pid in crate::kills::backends(&place).await {
                        let ended = query_scalar("SELECT pg_terminate_backend($1)").bind(pid);
                        // The server may be restarting still.
                        let _: Result<bool, _> = ended.fetch_one(&mut connection).await;
                    }
                }
                8 => {
                    place.pause(seat, true);
                    tokio::time::sleep(pause * 2).await;
                    place.pause(seat, false);
                }
                9 => {
                    let pids = crate::kills::backends(&place).await;
                    let some: Vec<u32> = pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).take(3).collect();
                    some.iter().for_each(|pid| signal(*pid, Signal::STOP));
                    tokio::time::sleep(pause * 4).await;
                    some.iter().for_each(|pid| signal(*pid, Signal::CONT));
                }
                _ => {
                    let table = ["approvals", "executions", "waits", "audit_records"][random.below(4)];
                    let mut connection = place.connection().await;
                    let lock = AssertSqlSafe(format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"));
                    if raw_sql(lock).execute(&mut connection).await.is_ok() {
                        tokio::time::sleep(pause * 2).await;
                        let _ = query("ROLLBACK").execute(&mut connection).await;
                    }
                }
            }
            if faults % 10 == 0 {
                place.serves_again().await;
                place.check(random.seed()).await;
            }
        }
        load.answers(CALLS).await;
        println!("{faults} faults");
        holds(&place, load, random).await;
        watchers.hold(&place).await;
    });
}
