//! Processes that are killed: a sidecar, one of the database's, all of them.

use crate::place::{Place, blocking};
use crate::{CALLS, in_the_middle_of_load};
use sqlx::{Row as _, query, query_scalar};
use std::time::Duration;

/// The processes of the server that serve sidecars.
pub async fn backends(place: &Place) -> Vec<i32> {
    let mut connection = place.connection().await;
    let asked = query("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'countersign%' ORDER BY pid");
    asked.fetch_all(&mut connection).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_sidecar_that_is_killed_takes_nothing_with_it() {
    in_the_middle_of_load(async |_, place, random| {
        for _ in 0..3 {
            let seat = random.below(2);
            place.kill(seat);
            // The other one serves on alone meanwhile.
            place.check(random.seed()).await;
            place.restart(seat);
            tokio::time::sleep(Duration::from_millis(random.below(400) as u64)).await;
        }
    });
}

#[test]
fn both_sidecars_killed_at_once_lose_nothing() {
    in_the_middle_of_load(async |_, place, _| {
        (0..2).for_each(|seat| place.kill(seat));
        (0..2).for_each(|seat| place.restart(seat));
    });
}

#[test]
fn connections_that_the_server_ends_are_made_anew() {
    in_the_middle_of_load(async |_, place, random| {
        for _ in 0..6 {
            let mut connection = place.connection().await;
            for pid in backends(place).await {
                if random.below(2) == 0 {
                    let ended = query_scalar("SELECT pg_terminate_backend($1)").bind(pid);
                    let _: bool = ended.fetch_one(&mut connection).await.unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(random.below(300) as u64)).await;
        }
    });
}

#[test]
fn a_process_of_the_server_that_is_killed_restarts_it_and_loses_nothing() {
    in_the_middle_of_load(async |cluster, place, random| {
        let pids = backends(place).await;
        cluster.kill_backend(pids[random.below(pids.len())]);
    });
}

#[test]
fn a_cluster_that_is_stopped_at_once_under_load_loses_nothing() {
    in_the_middle_of_load(async |cluster, place, random| {
        for _ in 0..2 {
            blocking(|| cluster.stop_immediate());
            tokio::time::sleep(Duration::from_millis(random.below(1_500) as u64)).await;
            blocking(|| cluster.start_again());
            place.serves_again().await;
            let before = place.history.answers();
            while place.history.answers() < before + CALLS {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            place.check(random.seed()).await;
        }
    });
}

#[test]
fn a_sidecar_that_stands_still_past_deadlines_is_not_ahead_of_them_when_it_goes_on() {
    in_the_middle_of_load(async |_, place, random| {
        for _ in 0..2 {
            let seat = random.below(2);
            place.pause(seat, true);
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            place.pause(seat, false);
        }
    });
}
