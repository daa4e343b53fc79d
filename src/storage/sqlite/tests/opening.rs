//! What keeps a file shut, and how files are made.

use super::*;
use crate::storage::conformance::{NO_LIMITS, approval_id, question_about, sealed_arguments, start, subject};
use std::os::unix::fs::PermissionsExt as _;

async fn run(path: &Path, statement: &'static str) {
    let mut connection =
        sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap();
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_second_store_is_refused_and_told_who_has_the_file() {
    let folder = Folder::new();
    let first = open(&folder).await;
    let began = std::time::Instant::now();
    let patience = Duration::from_millis(150);
    let error = open_with(&folder, |options| options.lock_timeout = patience).await.unwrap_err();
    assert!(began.elapsed() >= patience);
    assert!(matches!(error, OpenError::Locked { holder: Some(pid), .. } if pid == std::process::id()), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()));
    first.time().await.unwrap();
    first.close().await;
    open(&folder).await.time().await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_about_to_go_is_waited_for() {
    let folder = Folder::new();
    let first = open(&folder).await;
    let leaving = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(first);
    });
    open(&folder).await.time().await.unwrap();
    leaving.await.unwrap();
}

#[tokio::test]
async fn another_name_of_the_file_is_the_same_lock() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let _first = open(&folder).await;
    std::os::unix::fs::symlink(folder.database(), elsewhere.database()).unwrap();
    let error = open_with(&elsewhere, |options| options.lock_timeout = Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
}

#[tokio::test]
async fn a_lock_file_without_a_pid_names_nobody() {
    let folder = Folder::new();
    let _first = open(&folder).await;
    let mut beside = folder.database().into_os_string();
    beside.push(".lock");
    for text in ["", "not a pid", "-1", "99999999999999999999999999999999999999999"] {
        std::fs::write(&beside, text).unwrap();
        let error = open_with(&folder, |options| options.lock_timeout = Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, OpenError::Locked { holder: None, .. }), "{text:?}: {error}");
    }
}

#[tokio::test]
async fn files_are_for_their_owner_alone() {
    let folder = Folder::new();
    let store = open(&folder).await;
    store.time().await.unwrap();
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(&folder.0).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        seen.push(entry.file_name().into_string().unwrap());
    }
    seen.sort();
    assert_eq!(seen, ["countersign.db", "countersign.db-shm", "countersign.db-wal", "countersign.db.lock"]);
}

#[tokio::test]
async fn a_closed_store_leaves_one_whole_file() {
    let folder = Folder::new();
    let store = open(&folder).await;
    store.add_key(StoredKey { id: "00".to_owned(), check: "ff".to_owned() }).await.unwrap();
    store.close().await;
    assert!(!folder.0.join("countersign.db-wal").exists(), "the log is in the file");
}

#[tokio::test]
async fn a_missing_directory_is_named_and_not_made() {
    let folder = Folder::new();
    let missing = folder.0.join("missing");
    let error = open_with(&folder, |options| options.path = missing.join("x.db")).await.unwrap_err();
    assert!(matches!(&error, OpenError::DirectoryMissing { directory } if *directory == missing), "{error}");
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    let error = open_with(&folder, |options| options.path = file.join("x.db")).await.unwrap_err();
    assert!(matches!(error, OpenError::DirectoryMissing { .. }), "{error}");
}

#[tokio::test]
async fn a_directory_is_no_database() {
    let folder = Folder::new();
    for path in [folder.0.clone(), PathBuf::from("/"), PathBuf::from("")] {
        let error = open_with(&folder, |options| options.path.clone_from(&path)).await.unwrap_err();
        assert!(
            matches!(error, OpenError::NotWritable { .. } | OpenError::NotADatabase { .. }),
            "{}: {error}",
            path.display()
        );
    }
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    let text = "This is a letter, and quite a long one. ".repeat(200);
    std::fs::write(folder.database(), &text).unwrap();
    let error = open_with(&folder, |_| {}).await.unwrap_err();
    assert!(matches!(error, OpenError::NotADatabase { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(folder.database()).unwrap(), text);
}

#[tokio::test]
async fn the_database_of_another_program_is_refused_and_left_as_it_is() {
    for statement in
        ["CREATE TABLE notes (text)", "PRAGMA application_id = 7", "PRAGMA application_id = 7; CREATE TABLE a (b)"]
    {
        let folder = Folder::new();
        run(&folder.database(), statement).await;
        let before = std::fs::read(folder.database()).unwrap();
        let error = open_with(&folder, |_| {}).await.unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{statement}: {error}");
        assert_eq!(std::fs::read(folder.database()).unwrap(), before, "{statement}");
    }
}

#[tokio::test]
async fn the_log_of_another_program_is_left_as_it_is() {
    let (theirs, folder) = (Folder::new(), Folder::new());
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(theirs.database()).create_if_missing(true);
    let mut connection = options.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal).connect().await.unwrap();
    sqlx::raw_sql("CREATE TABLE notes (text)").execute(&mut connection).await.unwrap();
    // As it stands while they have it open, or have crashed.
    for name in ["countersign.db", "countersign.db-wal"] {
        std::fs::copy(theirs.0.join(name), folder.0.join(name)).unwrap();
    }
    let error = open_with(&folder, |_| {}).await.unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    for name in ["countersign.db", "countersign.db-wal"] {
        assert_eq!(std::fs::read(theirs.0.join(name)).unwrap(), std::fs::read(folder.0.join(name)).unwrap(), "{name}");
    }
}

#[tokio::test]
async fn a_crash_leaves_a_file_that_opens() {
    let folder = Folder::new();
    let store = open(&folder).await;
    store.add_key(StoredKey { id: "00".to_owned(), check: "ff".to_owned() }).await.unwrap();
    let crashed = Folder::new();
    for name in ["countersign.db", "countersign.db-wal"] {
        std::fs::copy(folder.0.join(name), crashed.0.join(name)).unwrap();
    }
    // The last write was torn.
    let torn = crashed.0.join("countersign.db-wal");
    let length = std::fs::metadata(&torn).unwrap().len();
    let mut bytes = std::fs::read(&torn).unwrap();
    bytes.extend([0x5a; 3_000]);
    std::fs::write(&torn, &bytes).unwrap();
    assert!(length > 0);
    let again = open(&crashed).await;
    assert_eq!(again.keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_empty_file_is_a_new_database() {
    let folder = Folder::new();
    std::fs::write(folder.database(), "").unwrap();
    open(&folder).await.time().await.unwrap();
}

#[tokio::test]
async fn a_schema_that_is_too_new_is_refused() {
    let folder = Folder::new();
    open(&folder).await.close().await;
    run(&folder.database(), "INSERT INTO schema_migrations VALUES (9001, '9001_later', 'x', 1, 0)").await;
    open(&folder).await.close().await;
    run(&folder.database(), "UPDATE schema_migrations SET compatible_from = 9000 WHERE version = 9001").await;
    let error = open_with(&folder, |_| {}).await.unwrap_err();
    assert!(matches!(error, OpenError::SchemaNewer { found: 9001, compatible_from: 9000, .. }), "{error}");
}

#[tokio::test]
async fn an_edited_migration_is_refused() {
    let folder = Folder::new();
    open(&folder).await.close().await;
    run(&folder.database(), "UPDATE schema_migrations SET checksum = 'x'").await;
    let error = open_with(&folder, |_| {}).await.unwrap_err();
    assert!(matches!(error, OpenError::MigrationChanged { version: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let folder = Folder::new();
    open(&folder).await.close().await;
    let mut bytes = std::fs::read(folder.database()).unwrap();
    // The first page's cells, behind the header that says what kind of file it is.
    bytes[100..4_096].fill(0xa5);
    std::fs::write(folder.database(), &bytes).unwrap();
    let error = open_with(&folder, |_| {}).await.unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. } | OpenError::NotADatabase { .. }), "{error}");
}

#[tokio::test]
async fn committed_times_far_ahead_are_refused_unless_accepted() {
    let folder = Folder::new();
    let later = |seconds| START.plus(Duration::from_secs(seconds));
    let ahead = Arc::new(ManualClock::at(later(300)));
    let store = open_with(&folder, |options| options.clock = Arc::<ManualClock>::clone(&ahead)).await.unwrap();
    store.add_key(StoredKey { id: "00".to_owned(), check: "ff".to_owned() }).await.unwrap();
    store.close().await;
    let store = open(&folder).await;
    assert_eq!(store.time().await.unwrap(), later(300), "five minutes are tolerated, and time does not go back");
    store.close().await;
    ahead.advance(Duration::from_micros(1));
    let store = open_with(&folder, |options| options.clock = ahead).await.unwrap();
    store.add_key(StoredKey { id: "01".to_owned(), check: "ff".to_owned() }).await.unwrap();
    store.close().await;
    let error = open_with(&folder, |_| {}).await.unwrap_err();
    let newest = later(300).plus(Duration::from_micros(1));
    assert!(matches!(error, OpenError::ClockBehind { newest: found, wall } if found == newest && wall == START));
    assert!(error.to_string().contains("--accept-clock"), "{error}");
    let store = open_with(&folder, |options| options.accept_clock = true).await.unwrap();
    assert_eq!(store.time().await.unwrap(), newest);
}

#[tokio::test]
async fn every_table_that_is_written_says_how_new_it_is() {
    for what in ["approvals", "executions", "audit_records", "keys"] {
        let folder = Folder::new();
        let ahead = Arc::new(ManualClock::at(START));
        let store = open_with(&folder, |options| options.clock = Arc::<ManualClock>::clone(&ahead)).await.unwrap();
        ahead.advance(Duration::from_secs(60));
        let newest = store.time().await.unwrap();
        match what {
            "keys" => store.add_key(StoredKey { id: "00".to_owned(), check: "ff".to_owned() }).await.unwrap(),
            "executions" => {
                store.start(start(subject())).await.unwrap().unwrap();
            }
            _ => {
                let question = question_about(what);
                let new = NewApproval {
                    id: approval_id(),
                    question,
                    request: None,
                    arguments: sealed_arguments(),
                    limits: NO_LIMITS,
                };
                store.request(new).await.unwrap();
            }
        }
        store.close().await;
        if what != "keys" && what != "audit_records" {
            run(&folder.database(), "DELETE FROM audit_records").await;
        }
        assert_eq!(open(&folder).await.time().await.unwrap(), newest, "{what}");
    }
}

#[tokio::test]
async fn another_name_of_the_same_file_is_no_second_database() {
    let folder = Folder::new();
    let first = open(&folder).await;
    let other = folder.0.join("other-name.db");
    let open_other =
        || SqliteStore::open(SqliteOptions { lock_timeout: Duration::ZERO, ..SqliteOptions::new(&other, clock()) });
    std::fs::hard_link(folder.database(), &other).unwrap();
    let error = open_other().await.unwrap_err();
    assert!(error.to_string().contains("hard link"), "{error}");
    // Moved away, or mounted elsewhere, it has one name again; what is locked is the file.
    std::fs::remove_file(folder.database()).unwrap();
    let error = open_other().await.unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    first.close().await;
    drop(first);
    open_other().await.unwrap().time().await.unwrap();
}
