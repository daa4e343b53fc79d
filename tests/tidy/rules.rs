//! Who may name what. These tables are the layering; the code map in the README tells it in words.

/// A module of the crate, or a part of one, and the paths below the crate's root that it may name. A part may also name
/// what its whole may.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("domain", &["domain"]),
    ("clock", &["domain"]),
    ("auth", &["auth", "domain", "clock"]),
    ("policy_files", &["policy_files", "domain"]),
    ("policy_test", &["policy_test", "policy_files", "domain"]),
    // Its figures are handed to it; it asks nobody.
    ("metrics", &["metrics", "domain"]),
    ("storage", &["storage", "domain", "clock"]),
    // The one part of it that counts wraps the others.
    ("storage::metered", &["metrics"]),
    ("secrets", &["secrets", "domain", "auth::token", "storage::StoredKey", "storage::SealedArguments"]),
    ("sweeper", &["storage"]),
    ("sealer", &["sealer", "storage", "domain", "secrets"]),
    (
        "engine",
        &[
            "engine",
            "domain",
            "storage",
            "secrets",
            "sealer::Sealer",
            "auth::AgentBounds",
            "metrics::Metrics",
            "metrics::Watcher",
            "metrics::Watching",
        ],
    ),
    // Generated: it names nothing of ours.
    ("proto", &[]),
    ("service", &["service", "engine", "domain", "auth", "proto", "metrics"]),
    ("service::audit", &["storage::AuditEntry"]),
    // The one file in which failures meet gRPC names every failure there is.
    (
        "service::errors",
        &[
            "storage::StoreError",
            "storage::OpenLimit",
            "storage::RefusedWait",
            "storage::AskedLimit",
            "storage::CoolingOff",
        ],
    ),
    ("address", &[]),
    ("client", &["proto", "address"]),
    ("config", &["config", "auth", "domain", "address"]),
    // Settings are handed to whom they are for.
    (
        "config",
        &[
            "clock::Clock",
            "storage::AskedLimit",
            "storage::QuestionLimits",
            "storage::Retention",
            "storage::sqlite::SqliteOptions",
        ],
    ),
    ("config", &["storage::postgres::PostgresOptions", "storage::postgres::TlsMode"]),
    ("telemetry", &["config"]),
    (
        "app",
        &[
            "app",
            "address",
            "auth",
            "clock",
            "config",
            "domain",
            "engine",
            "metrics",
            "policy_files",
            "sealer",
            "secrets",
            "service",
            "storage",
            "sweeper",
            "proto::DESCRIPTORS",
        ],
    ),
    (
        "cli",
        &[
            "cli",
            "address",
            "app",
            "auth",
            "client",
            "clock",
            "config",
            "domain",
            "engine",
            "policy_files",
            "policy_test",
            "proto",
            "secrets",
            "storage",
            "telemetry",
        ],
    ),
    ("main", &[]),
];

/// Every crate that is built in, and the modules that may name it. What has no row may not be named.
pub const CRATES: &[(&str, &[&str])] = &[
    // gRPC and HTTP end at the doors: what is behind them knows neither.
    ("tonic", &["service", "client", "cli", "proto", "app"]),
    ("tonic_types", &["service", "client", "cli"]),
    ("tonic_health", &["app", "client", "cli"]),
    ("tonic_reflection", &["app"]),
    ("prost", &["service", "proto", "client", "cli"]),
    // The floor that calls are measured against is a service that no proto declares.
    ("tonic_prost", &["cli::bench"]),
    ("prost_types", &["service", "client", "cli"]),
    ("axum", &["app"]),
    ("tower_layer", &["service", "app"]),
    ("tower_service", &["service", "app", "cli::bench"]),
    ("http_body", &["service"]),
    // A database is a backend's own business.
    ("sqlx", &["storage"]),
    ("futures_util", &["storage", "service"]),
    // What is swapped whole under running calls: the policy, the callers, what a listener shows.
    ("arc_swap", &["engine", "auth", "app"]),
    ("tokio", &["storage", "sweeper", "sealer", "auth", "engine", "service", "app", "client", "cli"]),
    ("tokio_stream", &["app"]),
    ("async_trait", &["storage"]),
    ("prometheus_client", &["metrics"]),
    ("clap", &["cli"]),
    ("toml", &["config"]),
    ("serde_ignored", &["config"]),
    ("tracing", &["storage", "sweeper", "sealer", "engine", "service", "app", "cli", "secrets"]),
    ("tracing_subscriber", &["telemetry", "config"]),
    ("serde", &["domain", "storage", "config", "cli", "policy_files"]),
    ("serde_json", &["domain", "storage", "cli"]),
    ("zeroize", &["auth", "app", "storage", "secrets", "config", "engine", "service", "client", "cli"]),
    ("uuid", &["domain", "storage", "sealer", "engine", "service", "cli"]),
    ("subtle", &["auth", "secrets"]),
    // TLS ends at the listeners, and what a certificate says is told as plain values.
    ("rustls", &["app", "client", "main", "cli"]),
    ("tokio_rustls", &["app"]),
    ("x509_parser", &["app"]),
    ("aws_lc_rs", &["secrets", "auth"]),
    // The keys of an issuer of tokens, and those of permits, are fetched by what runs beside the doors, and by commands.
    ("ureq", &["app", "cli"]),
    ("base64", &["auth", "secrets", "domain", "app", "cli"]),
    ("sha2", &["app", "domain", "policy_files", "auth", "secrets", "storage", "engine"]),
    ("hmac", &["secrets"]),
    ("hkdf", &["secrets"]),
    ("aes_gcm", &["secrets"]),
    // Randomness: secrets and tokens.
    ("getrandom", &["auth", "secrets"]),
    // What the pure part is made of.
    ("saphyr_parser", &["domain"]),
    ("cel", &["domain"]),
    ("regex_automata", &["domain"]),
    ("jiff", &["domain", "cli"]),
    ("icu_properties", &["domain", "cli"]),
    ("mimalloc", &["main"]),
    ("rustix", &["cli", "metrics"]),
    ("unicode_segmentation", &["domain"]),
];

/// Crates that no file of ours names, but the code that is generated from `proto/` does.
pub const GENERATED_CODE_NEEDS: &[&str] = &["prost", "tonic_prost"];

/// Paths outside the crate that may be named in few places only: the world that a decision must not depend on.
pub const WORLD: &[(&str, &[&str])] = &[
    // The store owns time, and takes it from the clock that it is given.
    ("std::time::SystemTime", &["clock"]),
    ("std::time::UNIX_EPOCH", &["clock"]),
    ("std::time::Instant", &["clock", "storage", "sweeper", "engine", "service", "app", "client", "cli"]),
    ("std::env", &["main", "cli", "config"]),
    // `metrics`: what the system knows of this process.
    (
        "std::fs",
        &[
            "metrics",
            "policy_files",
            "policy_test",
            "secrets",
            "storage",
            "config",
            "cli",
            "app::socket",
            "app::issuers",
            "app::tls",
            "sealer",
        ],
    ),
    ("std::net", &["address", "auth", "config", "app", "cli", "client"]),
    ("std::process", &["main", "storage", "cli"]),
    ("std::os", &["policy_files", "sealer", "secrets", "storage", "cli", "app::socket", "app::tls"]),
    ("std::io", &["policy_files", "sealer", "secrets", "storage", "config", "telemetry", "app", "cli", "main"]),
    // An expression is parsed on a stack of its own, when a policy is loaded and never for a request.
    ("std::thread", &["domain::policy::expression", "storage", "app", "cli"]),
    ("std", &["*"]),
    ("core", &["*"]),
];

/// Functions that fetch a time or make something up, by their last name: not for the domain, which is handed both.
pub const NOT_IN_THE_DOMAIN: &[&str] =
    &["now", "now_v7", "now_v1", "now_v6", "new_v4", "new_v7", "now_utc", "now_local"];

/// A file of the product that is longer than this is several.
pub const MOST_LINES: usize = 500;
/// No reason makes a file longer than this.
pub const MOST_LINES_EVER: usize = 600;
/// A file of `tests/` is a list of claims, of which one reads one at a time.
pub const MOST_LINES_OF_TESTS: usize = 1_000;
/// Files of the product that may be longer than `MOST_LINES`, each with why it is still one.
pub const LONG_FILES: &[(&str, &str)] = &[
    ("src/domain/preview/credentials.rs", "what a credential looks like, form by form: one list to be read as one"),
    (
        "src/domain/requirement.rs",
        "one idea, and half of the file is its tests: who could meet it, who has, and its digest",
    ),
    ("src/metrics/mod.rs", "everything that is counted, one field after the other"),
    ("src/domain/preview/tests.rs", "its cases, form by form, in the same order"),
];

/// What no text of the repository says, in two halves, since this file is one of them.
pub const UNSAID: &[(&str, &str, &str)] = &[
    ("/wo", "rk/", "a place on one machine"),
    ("/tm", "p/", "a place on one machine"),
    ("/ro", "ot/", "a place on one machine"),
    ("/ho", "me/", "a place on one machine"),
    ("py", "pi.org", "a registry's host"),
    ("python", "hosted", "a registry's host"),
    ("npm", "js.", "a registry's host"),
    ("index.cra", "tes.io", "a registry's host"),
    ("static.cra", "tes.io", "a registry's host"),
    ("arti", "factory", "a registry's host"),
    ("DESIGN", ".md", "a document that is not here"),
    ("STYLE", ".md", "a document that is not here"),
    ("FAULTS", ".md", "a document that is not here"),
    ("STACK", ".md", "a document that is not here"),
    ("the lea", "d's", "how the work is organised"),
    ("sub", "agent", "how the work is organised"),
    ("work", "tree", "how the work is organised"),
    ("pream", "ble", "how the work is organised"),
    ("issues sh", "ow", "how the work is organised"),
    ("issue num", "ber", "how the work is organised"),
    ("TO", "DO", "what is not done"),
    ("FIX", "ME", "what is not done"),
    ("\u{2014}", "", "a dash: a comma, a colon or parentheses do"),
    ("\u{2013}", "", "a dash: a comma, a colon or parentheses do"),
];

/// Folders and files that hold other people's text, or none.
pub const OTHERS_TEXT: &[&str] = &[
    "target",
    "Cargo.lock",
    "tests/data",
    "tests/vectors",
    "clients/typescript/node_modules",
    "clients/typescript/dist",
];
