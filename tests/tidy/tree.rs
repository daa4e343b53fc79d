//! The repository's files, and the modules that they are.

use crate::source::{Token, declared, tokens, without_tests};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of `src/`, as the compiler sees it.
pub struct Module {
    /// From the repository's root, with `/`.
    pub file: String,
    /// `["engine", "consume"]`; of `lib.rs` none, of `main.rs` `["main"]`.
    pub name: Vec<String>,
    /// Whether it is built only for tests.
    pub only_tests: bool,
    pub text: String,
}

impl Module {
    /// Everything that it says.
    pub fn tokens(&self) -> Vec<Token> {
        tokens(&self.text)
    }

    /// What of it is in the product.
    pub fn product(&self) -> Vec<Token> {
        if self.only_tests { Vec::new() } else { without_tests(&self.tokens()) }
    }
}

/// The repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder`, as paths from the root, but for what lies below one of `skipped`.
pub fn files(folder: &str, skipped: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    walk(&root(), folder, skipped, &mut found);
    found.sort();
    found
}

fn walk(root: &Path, folder: &str, skipped: &[&str], found: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        // Of what begins with a dot, only the checks are the repository's; the rest are tools' and `--dev`'s folders.
        let tools = (path.starts_with('.') && path != ".ci") || path.ends_with("/__pycache__");
        if tools || skipped.contains(&path.as_str()) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            // Another target folder is none of the repository's.
            if !root.join(&path).join("CACHEDIR.TAG").exists() {
                walk(root, &path, skipped, found);
            }
        } else {
            found.push(path);
        }
    }
}

/// What a file says. What is no text in it says nothing.
pub fn text(file: &str) -> String {
    let bytes = fs::read(root().join(file)).unwrap_or_else(|cause| panic!("{file}: {cause}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The modules that the declarations reach, from `lib.rs` and `main.rs` on.
pub fn modules() -> Vec<Module> {
    let known: BTreeMap<String, String> =
        files("src", &[]).into_iter().map(|file| (file.clone(), text(&file))).collect();
    reach(&known)
}

fn reach(known: &BTreeMap<String, String>) -> Vec<Module> {
    let mut reached: Vec<Module> = Vec::new();
    let mut next =
        vec![("src/lib.rs".to_owned(), Vec::new(), false), ("src/main.rs".to_owned(), vec!["main".to_owned()], false)];
    while let Some((file, name, only_tests)) = next.pop() {
        let Some(text) = known.get(&file) else { panic!("{file} is not there") };
        let folder = match name.as_slice() {
            [] => "src".to_owned(),
            [main] if main == "main" => "src".to_owned(),
            [..] => format!("src/{}", name.join("/")),
        };
        for declared in declared(&tokens(text)) {
            let only_tests = only_tests || declared.only_tests;
            // Only for tests is anything fetched from elsewhere: what is in the product is where its name says.
            if declared.elsewhere && only_tests {
                continue;
            }
            let (flat, nested) =
                (format!("{folder}/{}.rs", declared.name), format!("{folder}/{}/mod.rs", declared.name));
            let file = if known.contains_key(&flat) { flat } else { nested };
            let mut name = name.clone();
            name.push(declared.name);
            next.push((file, name, only_tests));
        }
        reached.push(Module { file, name, only_tests, text: text.clone() });
    }
    reached.sort_by(|left, right| left.file.cmp(&right.file));
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn declarations_are_followed_and_what_is_below_a_test_module_is_for_tests() {
        let known = known(&[
            ("src/lib.rs", "pub mod engine; pub mod auth;"),
            ("src/main.rs", "fn main() {}"),
            (
                "src/engine/mod.rs",
                "mod consume; #[cfg(test)] mod tests; #[cfg(test)] #[path = \"../../tests/a.rs\"] pub mod a;",
            ),
            ("src/engine/consume.rs", ""),
            ("src/engine/tests.rs", "mod order;"),
            ("src/engine/tests/order.rs", ""),
            ("src/auth.rs", "mod token;"),
            ("src/auth/token.rs", ""),
            ("src/auth/forgotten.rs", ""),
        ]);
        let reached: Vec<(String, String, bool)> =
            reach(&known).into_iter().map(|module| (module.file, module.name.join("::"), module.only_tests)).collect();
        let wanted = [
            ("src/auth.rs", "auth", false),
            ("src/auth/token.rs", "auth::token", false),
            ("src/engine/consume.rs", "engine::consume", false),
            ("src/engine/mod.rs", "engine", false),
            ("src/engine/tests.rs", "engine::tests", true),
            ("src/engine/tests/order.rs", "engine::tests::order", true),
            ("src/lib.rs", "", false),
            ("src/main.rs", "main", false),
        ];
        assert_eq!(reached, wanted.map(|(file, name, only_tests)| (file.to_owned(), name.to_owned(), only_tests)));
    }

    #[test]
    #[should_panic(expected = "is not there")]
    fn a_declared_module_without_a_file_is_found() {
        reach(&known(&[("src/lib.rs", "mod gone;"), ("src/main.rs", "")]));
    }
}
