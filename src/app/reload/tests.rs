//! Time passes when a test says so: each wait of the reloader is met by the test, which changes files before it goes on.

use super::*;
use crate::clock::ManualClock;
use crate::domain::preview::{PreviewConfig, Previewer};
use crate::domain::time::Timestamp;
use crate::engine::Secrets;
use crate::secrets;
use crate::storage::sqlite::{SqliteOptions, SqliteStore};
use crate::storage::{QuestionLimits, Store};
use std::fs;
use tokio::sync::mpsc;

const SETTLE: Duration = Duration::from_secs(7);

/// Waits are told and end when the test says so.
struct Steps {
    waits: mpsc::UnboundedSender<Duration>,
    go: tokio::sync::Mutex<mpsc::UnboundedReceiver<()>>,
}

impl Pace for Steps {
    async fn wait(&self, span: Duration) {
        self.waits.send(span).unwrap();
        self.go.lock().await.recv().await;
    }
}

/// Where a reloader waits.
#[derive(Debug, PartialEq, Eq)]
enum At {
    /// Nothing has changed, as far as it knows.
    Rest,
    /// Something has, and has to hold still.
    Settling,
}

struct Fixture {
    folder: PathBuf,
    engine: Arc<Engine>,
    asked: Arc<Notify>,
    waits: mpsc::UnboundedReceiver<Duration>,
    go: mpsc::UnboundedSender<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

impl Fixture {
    /// A reloader at rest over a folder with this one file `policy/a.yaml`.
    async fn new(name: &str, text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("countersign-reload-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("policy")).unwrap();
        fs::write(folder.join("policy/a.yaml"), text).unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_767_225_600_000_000)));
        let store = SqliteStore::open(SqliteOptions::new(folder.join("table.db"), clock)).await.unwrap();
        let keys = secrets::open(&folder.join("secret"), &[], &secrets::TableKeys::default()).unwrap();
        let built = Snapshot::read(&folder.join("policy"), &CatalogFiles::new()).build();
        let store: Arc<dyn Store> = Arc::new(store);
        let previewer = Previewer::new(PreviewConfig::default()).unwrap();
        let limits =
            QuestionLimits { per_principal: 1, per_agent: 1, per_action: 1, asked: None, cool_off: Duration::ZERO };
        let engine =
            Arc::new(Engine::new(store, Arc::new(built.policy.unwrap()), previewer, Secrets::whole(keys), limits));
        let (waits, waiting) = mpsc::unbounded_channel();
        let (go, gone) = mpsc::unbounded_channel();
        let asked = Arc::new(Notify::new());
        let reloader = Reloader {
            watched: Watched::new(folder.join("policy"), SETTLE, built.catalogs, built.digest),
            engine: Arc::clone(&engine),
            asked: Arc::clone(&asked),
            pace: Steps { waits, go: tokio::sync::Mutex::new(gone) },
        };
        tokio::spawn(reloader.run());
        let mut fixture = Self { folder, engine, asked, waits: waiting, go };
        assert_eq!(fixture.arrived().await, At::Rest);
        // The first look reads what the start has read.
        assert_eq!(fixture.step().await, At::Rest);
        fixture
    }

    async fn arrived(&mut self) -> At {
        if self.waits.recv().await.unwrap() == SETTLE { At::Settling } else { At::Rest }
    }

    /// Lets one wait end, and says where the next begins.
    async fn step(&mut self) -> At {
        self.go.send(()).unwrap();
        self.arrived().await
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join("policy").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn connectors(&self) -> Vec<String> {
        self.engine.policy().connectors().map(|connector| connector.name).collect()
    }

    /// How many loads went well, and how many did not.
    fn loads(&self) -> (u64, u64) {
        let reload = &self.engine.in_force().reload;
        (reload.succeeded, reload.failed)
    }

    fn problems(&self) -> Vec<String> {
        let prefix = format!("{}/", self.folder.display());
        self.engine.in_force().reload.problems.iter().map(|problem| problem.replace(&prefix, "")).collect()
    }
}

fn policy(connectors: &[&str]) -> String {
    let mut text = "version: countersign.policy/v1\nconnectors:\n".to_owned();
    for connector in connectors {
        text.push_str(&format!("  {connector}: {{}}\n"));
    }
    text
}

#[tokio::test]
async fn files_that_do_not_change_are_not_loaded_again() {
    let mut fixture = Fixture::new("same", &policy(&["a"])).await;
    for _ in 0..LOOKS_PER_READING * 2 {
        assert_eq!(fixture.step().await, At::Rest);
    }
    // Written again with the same content, which only reading can tell.
    fixture.write("a.yaml", &policy(&["a"]));
    assert_eq!(fixture.step().await, At::Rest);
    assert_eq!(fixture.loads(), (1, 0));
}

#[tokio::test]
async fn a_file_written_in_two_halves_is_loaded_once_and_whole() {
    let whole = policy(&["a", "b"]);
    let half = &whole[..whole.find("  b:").unwrap()];
    let mut fixture = Fixture::new("halves", &policy(&["old"])).await;
    fixture.write("a.yaml", half);
    assert_eq!(fixture.step().await, At::Settling);
    fixture.write("a.yaml", &whole);
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!((fixture.connectors(), fixture.loads()), (vec!["old".to_owned()], (1, 0)), "a half holds together too");
    assert_eq!(fixture.step().await, At::Rest);
    assert_eq!((fixture.connectors(), fixture.loads()), (vec!["a".to_owned(), "b".to_owned()], (2, 0)));
}

#[tokio::test]
async fn a_change_that_is_taken_back_at_once_changes_nothing() {
    let mut fixture = Fixture::new("back", &policy(&["a"])).await;
    let revision = fixture.engine.policy().revision().to_owned();
    fixture.write("a.yaml", "half");
    assert_eq!(fixture.step().await, At::Settling);
    fixture.write("a.yaml", &policy(&["a"]));
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!(fixture.step().await, At::Rest);
    assert_eq!((fixture.engine.policy().revision(), fixture.problems()), (revision.as_str(), vec![]));
}

#[tokio::test]
async fn a_storm_costs_one_reading_a_wait_and_ends_in_the_last_state() {
    let mut fixture = Fixture::new("storm", &policy(&["start"])).await;
    for number in 0..200 {
        fixture.write("a.yaml", &policy(&[&format!("c{number}")]));
        assert_eq!(fixture.step().await, At::Settling, "{number}");
        assert_eq!(fixture.connectors(), ["start"]);
    }
    assert_eq!(fixture.loads(), (1, 1), "told once that nothing holds still");
    assert!(fixture.problems()[0].contains("the files keep changing"), "{:?}", fixture.problems());
    assert_eq!(fixture.step().await, At::Rest);
    assert_eq!((fixture.connectors(), fixture.problems(), fixture.loads()), (vec!["c199".to_owned()], vec![], (2, 1)));
}

#[tokio::test]
async fn what_was_refused_is_tried_again_only_when_it_changes_or_somebody_asks() {
    let mut fixture = Fixture::new("refused", &policy(&["a"])).await;
    fixture.write("a.yaml", "version: countersign.policy/v1\nconectors: {}\n");
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!(fixture.step().await, At::Rest);
    assert_eq!((fixture.connectors(), fixture.loads()), (vec!["a".to_owned()], (1, 1)));
    assert!(fixture.problems()[0].starts_with("policy/a.yaml:2:1: conectors: "), "{:?}", fixture.problems());
    for _ in 0..=LOOKS_PER_READING {
        assert_eq!(fixture.step().await, At::Rest);
    }
    assert_eq!(fixture.loads(), (1, 1));
    fixture.asked.notify_one();
    assert_eq!(fixture.arrived().await, At::Settling);
    assert_eq!(fixture.step().await, At::Rest);
    assert_eq!(fixture.loads(), (1, 2));
    // What was in force before the refusal is loaded again like anything else.
    fixture.write("a.yaml", &policy(&["a"]));
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!(fixture.step().await, At::Rest);
    assert_eq!((fixture.loads(), fixture.problems()), ((2, 2), vec![]));
}

#[tokio::test]
async fn a_catalog_that_is_named_for_the_first_time_holds_still_too() {
    let catalog = |action: &str| {
        format!("version: countersign.catalog/v1\nactions: {{ {action}: {{ scope: read, curated: true }} }}\n")
    };
    let mut fixture = Fixture::new("catalog", &policy(&["a"])).await;
    fixture.write("catalogs/hub.yaml", &catalog("HALF"));
    assert_eq!(fixture.step().await, At::Rest, "nobody names it yet");
    let named = "version: countersign.policy/v1\nconnectors: { hub: { catalog: { file: catalogs/hub.yaml } } }\n";
    fixture.write("a.yaml", named);
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!(fixture.step().await, At::Settling, "the catalog was read for the first time");
    fixture.write("catalogs/hub.yaml", &catalog("WHOLE"));
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!(fixture.connectors(), ["a"]);
    assert_eq!(fixture.step().await, At::Rest);
    assert!(fixture.engine.policy().entry("hub", "WHOLE").is_some());
    // From now on it is one of the files.
    fixture.write("catalogs/hub.yaml", &catalog("LATER"));
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!(fixture.step().await, At::Rest);
    assert!(fixture.engine.policy().entry("hub", "LATER").is_some());
    fs::remove_file(fixture.folder.join("policy/catalogs/hub.yaml")).unwrap();
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!(fixture.step().await, At::Rest);
    assert!(fixture.problems()[0].ends_with("the catalog \"catalogs/hub.yaml\" does not exist"));
    assert!(fixture.engine.policy().entry("hub", "LATER").is_some(), "the last good one");
    // A catalog that is no longer named is nobody's business.
    fixture.write("a.yaml", &policy(&["b"]));
    assert_eq!(fixture.step().await, At::Settling);
    assert_eq!(fixture.step().await, At::Rest);
    assert_eq!((fixture.connectors(), fixture.problems()), (vec!["b".to_owned()], vec![]));
    fixture.write("catalogs/hub.yaml", "nonsense");
    assert_eq!(fixture.step().await, At::Rest);
}
