//! What a document says is shown by a test, is shown by one that there is.

use super::tree::{files, root, text};
use std::collections::BTreeSet;

/// Documents that name tests.
const NAMING: &[&str] = &["docs/security.md", "docs/audit.md", "docs/permits.md"];

#[test]
fn every_test_that_a_document_names_is_there() {
    let sources = [files("src", &[]), files("tests", &[])].concat();
    let tests: BTreeSet<String> =
        sources.iter().filter(|file| file.ends_with(".rs")).flat_map(|file| functions(&text(file))).collect();
    let mut found = Vec::new();
    let mut named = 0;
    for document in NAMING.iter().filter(|document| root().join(document).exists()) {
        for name in names(&text(document)) {
            named += 1;
            if !tests.contains(&name) {
                found.push(format!("{document}: there is no test `{name}`"));
            }
        }
    }
    assert!(named > 20, "{named}");
    super::none(found);
}

/// Every function of a source, by name.
fn functions(source: &str) -> Vec<String> {
    let name = |rest: &str| {
        rest.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next().unwrap_or_default().to_owned()
    };
    source.split("fn ").skip(1).map(name).collect()
}

/// What stands in backticks and reads like a claim: words joined by underscores, four at least.
fn names(document: &str) -> Vec<String> {
    let is_claim = |text: &&str| {
        // A metric begins with the product's name.
        text.matches('_').count() >= 3
            && !text.starts_with("countersign_")
            && text.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
    };
    document.split('`').skip(1).step_by(2).filter(is_claim).map(str::to_owned).collect()
}
