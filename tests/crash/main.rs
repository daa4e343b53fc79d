//! The real binary is killed (`SIGKILL`) in the middle of load, again and again over the same files, and each time what
//! its clients had been told is held against what it says when it is up again: nothing acknowledged is lost, nothing is
//! used twice, nothing is half done.
//!
//! `COUNTERSIGN_TEST_SEED` repeats a run's choices (not its timing); `COUNTERSIGN_TEST_KILLS` asks for more of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod disk;
mod files;
#[path = "../process/mod.rs"]
mod process;
#[path = "../random/mod.rs"]
mod random;
mod story;

use files::Files;
use process::{Clients, Sidecar};
use random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use story::Story;

/// How often it is killed where nothing is said.
const KILLS: usize = 50;
/// Agents at work at once, each on a question of its own.
const AGENTS: usize = 12;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_used_twice_however_often_the_sidecar_is_killed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let kills = std::env::var("COUNTERSIGN_TEST_KILLS").map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let mut random = Random::seeded();
    println!("seed {}", random.seed());
    runtime.block_on(async {
        let files = Files::new();
        let mut ended = Vec::new();
        let mut seen = Seen::default();
        let mut sidecar = files.start();
        for kill in 0..kills {
            let stories = under_load(sidecar, 1 + random.below(90), &mut random).await;
            sidecar = files.start();
            let clients = sidecar.clients();
            for mut story in stories {
                seen.count(&story);
                story.hold_against(&clients).await;
                ended.push(story);
            }
            assert!(sidecar.is_running(), "after kill {kill}");
        }
        let clients = sidecar.clients();
        // Once more from the first to the last: what was right after its own restart has stayed so over all later ones.
        for story in &mut ended {
            story.hold_against(&clients).await;
        }
        println!("{kills} kills, {} stories: {seen:?}", ended.len());
        assert!(seen.is_telling(), "the load did not get far enough to show anything: {seen:?}");
        assert!(sidecar.terminate(), "a stop in order ends with 0");
        files.check_database().await;
    });
}

/// Lets agents work until `acknowledged` answers have come, kills the sidecar under them, and hands out what each was told.
async fn under_load(mut sidecar: Sidecar, acknowledged: usize, random: &mut Random) -> Vec<Story> {
    let clients = sidecar.clients();
    let answers = Arc::new(AtomicUsize::new(0));
    let agents: Vec<_> = (0..AGENTS)
        .map(|_| tokio::spawn(work(clients.clone(), Arc::clone(&answers), Random::from(random.next()))))
        .collect();
    let mut waited = 0;
    while answers.load(Ordering::SeqCst) < acknowledged {
        tokio::time::sleep(Duration::from_millis(1)).await;
        waited += 1;
        assert!(waited < 60_000, "no answers come");
    }
    sidecar.kill();
    let mut stories = Vec::new();
    for agent in agents {
        stories.extend(agent.await.unwrap());
    }
    stories
}

/// One agent with its people: one question after the other, until nobody answers any more.
async fn work(clients: Clients, answers: Arc<AtomicUsize>, mut random: Random) -> Vec<Story> {
    let mut stories = Vec::new();
    loop {
        let mut story = Story::new(&mut random);
        let goes_on = story.live(&clients, &answers).await;
        stories.push(story);
        if !goes_on {
            return stories;
        }
    }
}

/// What the kills interrupted, so that a run that shows nothing does not pass for one that holds.
#[derive(Debug, Default)]
struct Seen {
    asked: usize,
    unanswered: usize,
    permits: usize,
    withdrawn: usize,
    reported: usize,
}

impl Seen {
    fn count(&mut self, story: &Story) {
        self.asked += usize::from(story.was_asked());
        self.unanswered += usize::from(story.was_cut_off());
        self.permits += usize::from(story.has_permit());
        self.withdrawn += usize::from(story.was_withdrawn());
        self.reported += usize::from(story.was_reported());
    }

    fn is_telling(&self) -> bool {
        [self.asked, self.unanswered, self.permits, self.withdrawn, self.reported].iter().all(|seen| *seen >= 5)
    }
}
