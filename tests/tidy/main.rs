//! Holds the repository to its layering and its manners: who may name whom, how long a file is, what no text says. The
//! rules are tables in `rules.rs`. A rule that stands in the way is changed there, with its reason.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod documents;
mod rules;
mod source;
mod tree;

use rules::{
    CRATES, GENERATED_CODE_NEEDS, LAYERS, LONG_FILES, MOST_LINES, MOST_LINES_EVER, MOST_LINES_OF_TESTS,
    NOT_IN_THE_DOMAIN, OTHERS_TEXT, UNSAID, WORLD,
};
use source::{Kind, Token, paths};
use std::collections::BTreeSet;
use tree::{Module, files, modules, root, text};

/// Fails with everything that was found, not with the first of it.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn every_module_names_only_the_layers_below_it() {
    none(modules().iter().flat_map(|module| layering(&module.file, &module.name, &module.tokens())).collect());
}

fn layering(file: &str, name: &[String], tokens: &[Token]) -> Vec<String> {
    // The crate's root only lists its modules.
    let Some(layer) = name.first() else { return Vec::new() };
    let rows: Vec<_> = LAYERS.iter().filter(|(part, _)| covers(part, name)).collect();
    if rows.is_empty() {
        return vec![format!("{file}: `{layer}` has no row in LAYERS: say what it may name")];
    }
    let allowed = |path: &[String]| {
        path.first() == Some(layer) || rows.iter().any(|(_, may)| may.iter().any(|may| covers(may, path)))
    };
    paths(tokens, name)
        .into_iter()
        .filter(|named| named.path.first().is_some_and(|first| first == "crate"))
        .filter(|named| !allowed(&named.path[1..]))
        .map(|named| format!("{file}:{}: `{layer}` may not name `{}`", named.line, named.path.join("::")))
        .collect()
}

/// Whether `path` is `prefix` or below it.
fn covers(prefix: &str, path: &[String]) -> bool {
    let mut path = path.iter();
    prefix.split("::").all(|name| path.next().is_some_and(|next| next == name))
}

#[test]
fn every_crate_and_the_world_are_named_only_where_they_belong() {
    let crates = dependencies(&text("Cargo.toml"), "dependencies");
    none(modules().iter().flat_map(|module| outside(module, &crates)).collect());
}

fn outside(module: &Module, crates: &BTreeSet<String>) -> Vec<String> {
    let is_outside =
        |first: &str| crates.contains(first) || ["std", "core", "alloc", "proc_macro", "test"].contains(&first);
    paths(&module.product(), &module.name)
        .into_iter()
        .filter(|named| named.path.first().is_some_and(|first| is_outside(first)))
        .filter_map(|named| {
            // The longest row decides.
            let row = CRATES.iter().chain(WORLD).filter(|(what, _)| covers(what, &named.path));
            let row = row.max_by_key(|(what, _)| what.len());
            let path = named.path.join("::");
            match row {
                None => Some(format!("{}:{}: `{path}` has no row in CRATES or WORLD", module.file, named.line)),
                Some((_, may)) if may.iter().any(|may| *may == "*" || covers(may, &module.name)) => None,
                Some((what, may)) => {
                    let may = may.join(", ");
                    Some(format!("{}:{}: `{path}`: only {may} may name `{what}`", module.file, named.line))
                }
            }
        })
        .collect()
}

#[test]
fn the_domain_knows_no_async_no_clock_and_no_chance() {
    none(modules().iter().filter(|module| covers("domain", &module.name)).flat_map(impurities).collect());
}

fn impurities(module: &Module) -> Vec<String> {
    let tokens = module.product();
    let words = tokens.iter().filter(|token| matches!(token.word(), Some("async" | "await")));
    let mut found: Vec<String> = words.map(|token| format!("{}:{}: async", module.file, token.line)).collect();
    found.extend(
        paths(&tokens, &module.name)
            .into_iter()
            .filter(|named| named.path.last().is_some_and(|last| NOT_IN_THE_DOMAIN.contains(&last.as_str())))
            .map(|named| format!("{}:{}: `{}`", module.file, named.line, named.path.join("::"))),
    );
    found
}

#[test]
fn every_dependency_is_used() {
    let manifest = text("Cargo.toml");
    let sources = |names: Vec<String>| -> BTreeSet<String> {
        let words = names.iter().flat_map(|file| source::tokens(&text(file)));
        words.filter_map(|token| token.word().map(str::to_owned)).collect()
    };
    let rust = |folder: &str| -> Vec<String> {
        files(folder, &["tests/data"]).into_iter().filter(|file| file.ends_with(".rs")).collect()
    };
    let (product, build) = (sources(rust("src")), sources(vec!["build.rs".to_owned()]));
    let tests: BTreeSet<String> = sources(rust("tests")).union(&product).cloned().collect();
    let generated: BTreeSet<String> = GENERATED_CODE_NEEDS.iter().map(|name| (*name).to_owned()).collect();
    let mut unused = Vec::new();
    for (section, named) in [("dependencies", &product), ("build-dependencies", &build), ("dev-dependencies", &tests)] {
        let wanted = dependencies(&manifest, section);
        assert!(!wanted.is_empty(), "{section} could not be read");
        let used = |name: &String| named.contains(name) || (section == "dependencies" && generated.contains(name));
        unused.extend(wanted.iter().filter(|name| !used(name)).map(|name| format!("{section}: `{name}` is not used")));
    }
    none(unused);
}

/// The names of a section of `Cargo.toml`, as Rust spells them.
fn dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    let lines = manifest.lines().skip_while(|line| *line != format!("[{section}]")).skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .collect()
}

#[test]
fn files_are_short_enough_to_be_read() {
    let rust = files("", OTHERS_TEXT).into_iter().filter(|file| file.ends_with(".rs"));
    none(rust.filter_map(|file| length(&file, text(&file).lines().count(), LONG_FILES)).collect());
}

fn length(file: &str, lines: usize, long: &[(&str, &str)]) -> Option<String> {
    let reason = long.iter().find(|(listed, _)| *listed == file).map(|(_, why)| why);
    match reason {
        None if file.starts_with("tests/") => (lines > MOST_LINES_OF_TESTS)
            .then(|| format!("{file}: {lines} lines; a file of tests may have {MOST_LINES_OF_TESTS}")),
        _ if lines > MOST_LINES_EVER => Some(format!("{file}: {lines} lines; nothing may have over {MOST_LINES_EVER}")),
        None if lines > MOST_LINES => {
            Some(format!("{file}: {lines} lines; over {MOST_LINES} needs a reason in LONG_FILES"))
        }
        Some(_) if lines <= MOST_LINES => Some(format!("{file}: {lines} lines; it needs no row in LONG_FILES")),
        Some(why) if why.len() < 20 => Some(format!("{file}: say why it is one file")),
        Some(_) | None => None,
    }
}

#[test]
fn every_file_of_the_product_says_what_it_is_for() {
    let without = |module: &&Module| !module.only_tests && !module.text.starts_with("//! ");
    let modules = modules();
    none(modules.iter().filter(without).map(|module| format!("{}: does not begin with `//! `", module.file)).collect());
}

#[test]
fn every_source_file_is_part_of_a_module() {
    let reached: BTreeSet<String> = modules().into_iter().map(|module| module.file).collect();
    let mut forgotten: Vec<String> =
        files("src", &[]).into_iter().filter(|file| file.ends_with(".rs") && !reached.contains(file)).collect();
    // A test target is a file right below `tests/`, or the `main.rs` of a folder there; the rest they declare.
    for file in files("tests", &["tests/data"]).iter().filter(|file| file.ends_with(".rs")) {
        let parts: Vec<&str> = file.split('/').collect();
        let is_target = parts.len() == 2 || (parts.len() == 3 && parts[2] == "main.rs");
        if !is_target && !declared_beside(file) {
            forgotten.push(file.clone());
        }
    }
    none(forgotten.into_iter().map(|file| format!("{file}: no module declares it, so it is never built")).collect());
}

/// Whether a file of the folders above `file` declares it.
fn declared_beside(file: &str) -> bool {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let (folder, name) = path.rsplit_once('/').unwrap();
    let parents = [format!("{folder}/main.rs"), format!("{folder}/mod.rs"), format!("{folder}.rs")];
    let mut declarations: Vec<String> = parents.into_iter().filter(|parent| root().join(parent).exists()).collect();
    if folder.matches('/').count() == 1 {
        // `tests/common/mod.rs` is declared by the targets beside its folder.
        let beside = files("tests", &["tests/data"]).into_iter().filter(|file| file.matches('/').count() == 1);
        declarations.extend(beside.filter(|file| file.ends_with(".rs")));
    } else if folder == "tests" {
        let targets = files("tests", &["tests/data"]).into_iter();
        declarations.extend(targets.filter(|file| file.ends_with(".rs") && file.matches('/').count() < 3));
    }
    declarations
        .iter()
        .any(|parent| source::declared(&source::tokens(&text(parent))).iter().any(|declared| declared.name == name))
}

#[test]
fn no_statement_reads_or_returns_columns_unnamed() {
    let mut found = Vec::new();
    for module in modules().iter().filter(|module| covers("storage", &module.name)) {
        for token in module.product() {
            if let Kind::Literal(text) = &token.kind
                && names_no_columns(text)
            {
                found.push(format!("{}:{}: name the columns", module.file, token.line));
            }
        }
    }
    let migrations = files("src", &[]).into_iter().filter(|file| file.ends_with(".sql"));
    found.extend(
        migrations.filter(|file| names_no_columns(&text(file))).map(|file| format!("{file}: name the columns")),
    );
    none(found);
}

fn names_no_columns(statement: &str) -> bool {
    let words: Vec<String> = statement.split_whitespace().map(str::to_ascii_uppercase).collect();
    words.windows(2).any(|pair| (pair[0] == "SELECT" || pair[0] == "RETURNING") && pair[1].trim_end_matches(',') == "*")
}

#[test]
fn the_contract_imports_only_well_known_types_and_itself() {
    let mut found = Vec::new();
    for file in files("proto", &[]) {
        for line in text(&file).lines().filter_map(|line| line.strip_prefix("import ")) {
            let imported = line.trim_start_matches("public ").trim_matches(['"', ';']);
            if !imported.starts_with("google/protobuf/") && !imported.starts_with("countersign/v1/") {
                found.push(format!("{file}: imports {imported}"));
            }
        }
        if text(&file).contains("google.protobuf.Struct ") || text(&file).contains("google/protobuf/struct.proto") {
            found.push(format!("{file}: a Struct turns every number into a double"));
        }
    }
    none(found);
}

#[test]
fn the_repository_speaks_of_the_product_alone() {
    none(files("", OTHERS_TEXT).iter().flat_map(|file| said(file, &text(file))).collect());
}

fn said(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (one, other, why) in UNSAID {
            if line.contains(&format!("{one}{other}")) {
                found.push(format!("{file}:{}: `{one}{other}`: {why}", number + 1));
            }
        }
    }
    found
}

#[test]
fn what_a_newcomer_looks_for_is_there() {
    for file in ["README.md", "CHANGELOG.md", "Cargo.lock", "deny.toml", "buf.yaml", ".ci/run"] {
        assert!(root().join(file).is_file(), "{file} is missing");
    }
    let readme = text("README.md");
    assert!(readme.contains("cargo test --locked"), "the README names the test command");
    assert!(text(".ci/run").contains("cargo test --locked"), ".ci/run calls the README's test command");
}

mod each_rule_can_fail {
    use super::*;

    /// A scanner that took a quote for a string's end would see code as text from there on, and find nothing in it.
    #[test]
    fn the_scanner_keeps_its_footing_in_every_file() {
        for file in files("", OTHERS_TEXT).iter().filter(|file| file.ends_with(".rs")) {
            let mut open = Vec::new();
            for token in source::tokens(&text(file)) {
                let Kind::Sign(sign) = token.kind else { continue };
                match sign {
                    '(' | '[' | '{' => open.push(sign),
                    ')' => assert_eq!(open.pop(), Some('('), "{file}:{}", token.line),
                    ']' => assert_eq!(open.pop(), Some('['), "{file}:{}", token.line),
                    '}' => assert_eq!(open.pop(), Some('{'), "{file}:{}", token.line),
                    _ => {}
                }
            }
            assert!(open.is_empty(), "{file}: {open:?}");
        }
    }

    fn module(name: &str, text: &str) -> Module {
        let name: Vec<String> = name.split("::").map(str::to_owned).collect();
        Module { file: format!("src/{}.rs", name.join("/")), name, only_tests: false, text: text.to_owned() }
    }

    fn layers(name: &str, text: &str) -> Vec<String> {
        let module = module(name, text);
        layering(&module.file, &module.name, &module.tokens())
    }

    #[test]
    fn a_layer_that_names_a_higher_one_is_found_however_it_is_spelt() {
        for text in [
            "use crate::storage::Store;",
            "use crate::{domain::ids::ApprovalId, storage};",
            "use crate as all;",
            "use crate::*;",
            "use super::super::storage::Store;",
            "fn f() { crate::engine::Engine::new(); }",
            "fn f(store: &dyn crate::storage::Store) {}",
            "#[cfg(test)] mod tests { use crate::engine::Engine; }",
            "#[cfg(test)] mod tests { use super::super::super::engine::Engine; }",
        ] {
            assert_eq!(layers("domain::approval", text).len(), 1, "{text}");
        }
        let wanted = "src/domain/approval.rs:2: `domain` may not name `crate::storage::Store`";
        assert_eq!(layers("domain::approval", "\nuse crate::storage::Store;"), [wanted]);
    }

    #[test]
    fn what_is_allowed_in_part_is_refused_as_a_whole() {
        assert!(layers("engine", "use crate::auth::AgentBounds;").is_empty());
        assert_eq!(layers("engine", "use crate::auth::{AgentBounds, Callers};").len(), 1);
        assert_eq!(layers("engine", "use crate::auth;").len(), 1);
        assert_eq!(layers("engine", "use crate::auth::*;").len(), 1);
        assert!(layers("service::errors", "use crate::storage::StoreError;").is_empty());
        assert_eq!(layers("service::agent", "use crate::storage::StoreError;").len(), 1);
        assert!(layers("app", "use crate::proto::DESCRIPTORS;").is_empty());
        assert_eq!(layers("app", "use crate::proto;").len(), 1);
    }

    #[test]
    fn a_new_module_needs_a_row() {
        assert_eq!(layers("sessions", "").len(), 1);
    }

    #[test]
    fn crates_and_the_world_are_found_where_they_do_not_belong() {
        let crates = dependencies(
            "[dependencies]\n# a = 1\nsqlx = \"0\"\nnew-one = { version = \"1\" }\n[b]\nc = 1",
            "dependencies",
        );
        assert_eq!(crates, BTreeSet::from(["sqlx".to_owned(), "new_one".to_owned()]));
        for (name, text) in [
            ("engine", "use sqlx::Row;"),
            ("storage", "use new_one::Thing;"),
            ("domain::approval", "fn f() { std::time::SystemTime::now(); }"),
            ("domain::approval", "use std::time::{Duration, Instant};"),
            ("domain::approval", "use std::{env};"),
            ("domain::approval", "use std::thread;"),
            ("domain::approval", "use std::net::SocketAddr;"),
            ("storage", "use std::time::SystemTime;"),
        ] {
            assert_eq!(outside(&module(name, text), &crates).len(), 1, "{name}: {text}");
        }
        for (name, text) in [
            ("storage::sqlite", "use sqlx::Row;"),
            ("domain::approval", "use std::time::Duration; #[cfg(test)] mod tests { use std::time::Instant; }"),
            ("domain::policy::expression", "use std::thread;"),
        ] {
            assert!(outside(&module(name, text), &crates).is_empty(), "{name}: {text}");
        }
    }

    #[test]
    fn an_impure_domain_is_found() {
        for text in ["async fn f() {}", "Uuid::now_v7()", "let now = Timestamp::now();", "f(jiff::Zoned::now())"] {
            assert_eq!(impurities(&module("domain::ids", text)).len(), 1, "{text}");
        }
        assert!(impurities(&module("domain::ids", "fn f(now: Timestamp) { g(now.micros()) } // async")).is_empty());
    }

    #[test]
    fn a_long_file_needs_a_reason_and_a_reason_needs_a_long_file() {
        let why = [("src/a.rs", "one table, read as a whole")];
        assert!(length("tests/a/b.rs", MOST_LINES_OF_TESTS, &[]).is_none());
        assert!(length("tests/a/b.rs", MOST_LINES_OF_TESTS + 1, &[]).is_some());
        assert!(length("src/a/tests.rs", MOST_LINES_EVER + 1, &[]).is_some());
        assert!(length("src/a.rs", MOST_LINES, &[]).is_none());
        assert!(length("src/a.rs", MOST_LINES + 1, &[]).is_some());
        assert!(length("src/a.rs", MOST_LINES + 1, &why).is_none());
        assert!(length("src/a.rs", MOST_LINES_EVER + 1, &why).is_some());
        assert!(length("src/a.rs", MOST_LINES, &why).is_some());
        assert!(length("src/a.rs", MOST_LINES + 1, &[("src/a.rs", "because")]).is_some());
    }

    #[test]
    fn unnamed_columns_are_found() {
        assert!(names_no_columns("select * from approvals"));
        assert!(names_no_columns("UPDATE a SET b = 1\n  RETURNING *"));
        assert!(!names_no_columns("SELECT count(*), a.b FROM a"));
    }

    #[test]
    fn what_is_unsaid_is_found_with_its_line() {
        for (one, other, why) in UNSAID {
            let text = format!("fine\nnot {one}{other} so\n");
            assert_eq!(said("README.md", &text), [format!("README.md:2: `{one}{other}`: {why}")]);
        }
    }
}
