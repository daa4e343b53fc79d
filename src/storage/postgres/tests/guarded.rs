//! A server that asks who somebody is, and shows who it is itself.

use super::*;
use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions, query_scalar, raw_sql};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr as _;
use zeroize::Zeroizing;

const FIRST: &str = "first-s3cret";
const SECOND: &str = "second-s3cret";

type Change = fn(&mut PostgresOptions, &Folder);

/// Who may come in, and how.
const WHO: &str = "local all all trust\nhostssl all app 127.0.0.1/32 scram-sha-256\nhost all app ::1/128 reject\n";

/// A folder that goes when this does.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("countersign-guarded-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs `openssl` in it.
    fn openssl(&self, arguments: &str) {
        let run = Command::new("openssl").args(arguments.split(' ')).current_dir(&self.0).output().unwrap();
        assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
    }

    /// Makes an authority of this name.
    fn authority(&self, name: &str) {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout {name}.key -out {name}.pem \
             -subj /CN={name}"
        ));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether there is what makes certificates. It may be missing where somebody works, and not where it is decided.
fn has_openssl() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok_and(|run| run.status.success());
    assert!(found || std::env::var_os("CI").is_none(), "tests of TLS need openssl");
    found
}

async fn admin(server: &cluster::Cluster) -> PgConnection {
    PgConnectOptions::from_str(&server.url("postgres")).unwrap().connect().await.unwrap()
}

/// A server whose certificate is for `localhost`, of an authority of its own, and that lets `app` in with a password and
/// TLS alone.
async fn guarded(folder: &Folder) -> cluster::Cluster {
    folder.authority("authority");
    folder.authority("another");
    fs::write(folder.file("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    folder.openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=server",
    );
    folder.openssl(
        "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names \
         -out server.crt",
    );
    let server = cluster::Cluster::start();
    let mut connection = admin(&server).await;
    let data: String = query_scalar("SHOW data_directory").fetch_one(&mut connection).await.unwrap();
    let data = Path::new(&data);
    let owner = fs::metadata(data).unwrap();
    for name in ["server.crt", "server.key"] {
        let to = data.join(name);
        fs::copy(folder.file(name), &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    fs::write(data.join("pg_hba.conf"), WHO).unwrap();
    for sql in ["ALTER SYSTEM SET ssl = on", "CREATE ROLE app LOGIN", "CREATE DATABASE approvals OWNER app"] {
        raw_sql(sql).execute(&mut connection).await.unwrap();
    }
    set_password(&mut connection, FIRST).await;
    drop(connection);
    server.restart();
    server
}

async fn set_password(connection: &mut PgConnection, password: &str) {
    raw_sql(AssertSqlSafe(format!("ALTER ROLE app PASSWORD '{password}'"))).execute(connection).await.unwrap();
}

fn as_app(server: &cluster::Cluster, folder: &Folder, host: &str) -> PostgresOptions {
    PostgresOptions {
        password: Some(Zeroizing::new(FIRST.to_owned())),
        root_certificate: Some(folder.file("authority.pem")),
        acquire_timeout: Duration::from_secs(30),
        ..PostgresOptions::new(format!("postgres://app@{host}:{}/approvals", server.port()))
    }
}

#[tokio::test]
async fn a_connection_is_as_secure_as_it_was_asked_to_be() {
    if !has_openssl() {
        return;
    }
    let folder = Folder::new("tls");
    let server = guarded(&folder).await;
    let store = PostgresStore::open(as_app(&server, &folder, "localhost")).await.unwrap();
    store.time().await.unwrap();
    let secured =
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'app' AND NOT ssl";
    assert_eq!(query_scalar::<_, i64>(secured).fetch_one(&mut admin(&server).await).await.unwrap(), 0);
    store.close().await;

    let not_secure: [(&str, Change); 3] = [
        // A certificate of nobody who is known; of somebody else; for another name.
        ("localhost", |options, _| options.root_certificate = None),
        ("localhost", |options, folder| options.root_certificate = Some(folder.file("another.pem"))),
        ("127.0.0.1", |_, _| {}),
    ];
    for (host, change) in not_secure {
        let mut options = as_app(&server, &folder, host);
        change(&mut options, &folder);
        let error = PostgresStore::open(options).await.unwrap_err();
        assert!(matches!(error, OpenError::NotSecure { .. }), "{host}: {error}");
    }
    let require = PostgresOptions { tls: TlsMode::Require, ..as_app(&server, &folder, "127.0.0.1") };
    PostgresStore::open(require).await.unwrap().close().await;
    let disable = PostgresOptions { tls: TlsMode::Disable, ..as_app(&server, &folder, "127.0.0.1") };
    let error = PostgresStore::open(disable).await.unwrap_err();
    assert!(matches!(&error, OpenError::Refused { user, .. } if user == "app"), "{error}");

    let mut connection = admin(&server).await;
    raw_sql("ALTER SYSTEM SET ssl = off").execute(&mut connection).await.unwrap();
    drop(connection);
    server.restart();
    let error = PostgresStore::open(as_app(&server, &folder, "localhost")).await.unwrap_err();
    assert!(matches!(error, OpenError::NotSecure { .. }), "{error}");
}

#[tokio::test]
async fn a_password_is_changed_under_a_running_store() {
    if !has_openssl() {
        return;
    }
    let folder = Folder::new("password");
    let server = guarded(&folder).await;
    let wrong =
        PostgresOptions { password: Some(Zeroizing::new(SECOND.to_owned())), ..as_app(&server, &folder, "localhost") };
    let error = PostgresStore::open(wrong).await.unwrap_err();
    assert!(matches!(&error, OpenError::Refused { user, .. } if user == "app"), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");

    fs::write(folder.file("password"), format!("{FIRST}\n")).unwrap();
    let options =
        PostgresOptions { password_file: Some(folder.file("password")), ..as_app(&server, &folder, "localhost") };
    let store = PostgresStore::open(options).await.unwrap();
    store.time().await.unwrap();
    let mut connection = admin(&server).await;
    set_password(&mut connection, SECOND).await;
    fs::write(folder.file("password"), SECOND).unwrap();
    let end = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'app'";
    query(end).fetch_all(&mut connection).await.unwrap();
    store.time().await.unwrap();
    store.close().await;
}
