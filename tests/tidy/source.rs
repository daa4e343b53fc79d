//! Reads Rust as far as the rules need it: its words without comments and literals, what of it is built only for tests,
//! which modules it declares, and every path that it names, spelt out from the crate's root.

/// A token with the line it stands on, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub line: usize,
    pub kind: Kind,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or a keyword.
    Word(String),
    /// `::`
    Colons,
    /// Any other sign.
    Sign(char),
    /// A string, character, number or lifetime. Of strings the text between the quotes is kept as written.
    Literal(String),
}

/// A path as a file names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    pub line: usize,
    /// `crate::…` spelt out, or as written where it starts with a crate's name or a name in scope.
    pub path: Vec<String>,
}

/// A `mod name;`, and whether it is built only for tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    pub only_tests: bool,
    /// Whether its file is not where its name says.
    pub elsewhere: bool,
}

impl Token {
    pub fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            Kind::Colons | Kind::Sign(_) | Kind::Literal(_) => None,
        }
    }

    pub fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }
}

/// The tokens of `text`.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut reader = Reader { rest: text, line: 1, found: Vec::new() };
    while reader.step() {}
    reader.found
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    found: Vec<Token>,
}

impl Reader<'_> {
    fn step(&mut self) -> bool {
        let Some(next) = self.rest.chars().next() else { return false };
        if next.is_whitespace() {
            self.pass(next.len_utf8());
        } else if self.rest.starts_with("//") {
            self.pass(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.pass(block_comment(self.rest));
        } else if let Some((prefix, hashes)) = string_start(self.rest) {
            let (raw, open) = (prefix.contains('r'), prefix.len() + hashes + 1);
            let length = string(&self.rest[open..], raw, hashes);
            let text = self.rest[open..open + length].to_owned();
            self.push(Kind::Literal(text), (open + length + 1 + hashes).min(self.rest.len()));
        } else if next == '\'' || self.rest.starts_with("b'") {
            let length = quoted(self.rest);
            self.push(Kind::Literal(String::new()), length);
        } else if next.is_ascii_digit() {
            self.push(Kind::Literal(String::new()), length_while(self.rest, |c| c.is_alphanumeric() || c == '_'));
        } else if next.is_alphabetic() || next == '_' {
            let raw = if self.rest.starts_with("r#") { 2 } else { 0 };
            let length = raw + length_while(&self.rest[raw..], |c| c.is_alphanumeric() || c == '_');
            self.push(Kind::Word(self.rest[raw..length].to_owned()), length);
        } else if self.rest.starts_with("::") {
            self.push(Kind::Colons, 2);
        } else {
            self.push(Kind::Sign(next), next.len_utf8());
        }
        true
    }

    fn push(&mut self, kind: Kind, length: usize) {
        self.found.push(Token { line: self.line, kind });
        self.pass(length);
    }

    fn pass(&mut self, length: usize) {
        self.line += self.rest[..length].matches('\n').count();
        self.rest = &self.rest[length..];
    }
}

fn length_while(text: &str, mut holds: impl FnMut(char) -> bool) -> usize {
    text.find(|c| !holds(c)).unwrap_or(text.len())
}

/// The length of the block comment that `text` begins with; they nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The prefix (`""`, `b`, `r`, `br`, `c`, `cr`) and the number of hashes of a string that `text` begins with.
fn string_start(text: &str) -> Option<(&str, usize)> {
    let prefix = &text[..length_while(text, |c| c.is_ascii_alphabetic())];
    let hashes = length_while(&text[prefix.len()..], |c| c == '#');
    let quoted = text[prefix.len() + hashes..].starts_with('"');
    let known = match prefix {
        "r" | "br" | "cr" => true,
        "" | "b" | "c" => hashes == 0,
        _ => false,
    };
    (quoted && known).then_some((prefix, hashes))
}

/// How long a string's text is that `text` begins with, up to its closing quote.
fn string(text: &str, raw: bool, hashes: usize) -> usize {
    if raw {
        return text.find(&format!("\"{}", "#".repeat(hashes))).unwrap_or(text.len());
    }
    let mut escaped = false;
    length_while(text, |c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        !ends
    })
}

/// The length of the character, byte or lifetime that `text` begins with.
fn quoted(text: &str) -> usize {
    let open = text.find('\'').unwrap_or(0) + 1;
    let mut rest = text[open..].chars();
    match (rest.next(), rest.next()) {
        (Some('\\'), Some(escaped)) => {
            let after = open + 1 + escaped.len_utf8();
            text[after..].find('\'').map_or(text.len(), |end| after + end + 1)
        }
        (Some(c), Some('\'')) => open + c.len_utf8() + 1,
        _ => open + length_while(&text[open..], |c| c.is_alphanumeric() || c == '_'),
    }
}

/// Every `mod name;` of a file.
pub fn declared(tokens: &[Token]) -> Vec<Declared> {
    let outside_tests = without_tests(tokens);
    let of = |tokens: &[Token]| -> Vec<(String, bool)> {
        let places = (0..tokens.len())
            .filter(|at| tokens[*at].word() == Some("mod") && tokens.get(at + 2).is_some_and(|after| after.is(';')));
        places.filter_map(|at| Some((tokens[at + 1].word()?.to_owned(), placed(&tokens[..at])))).collect()
    };
    let built = of(&outside_tests);
    let all = of(tokens).into_iter();
    all.map(|(name, elsewhere)| {
        let only_tests = !built.iter().any(|(built, _)| *built == name);
        Declared { name, only_tests, elsewhere }
    })
    .collect()
}

/// Whether `#[path = "..."]` stands at the end of these tokens, which come before a module.
fn placed(before: &[Token]) -> bool {
    let before = match before {
        [before @ .., public] if public.word() == Some("pub") => before,
        before => before,
    };
    let [.., hash, open, path, is, _, close] = before else { return false };
    hash.is('#') && open.is('[') && path.word() == Some("path") && is.is('=') && close.is(']')
}

/// The tokens without the items under `#[cfg(test)]` or `#[test]`.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if let Some(end) = attribute(&tokens[at..]).map(|length| at + length) {
            let words: Vec<&str> = tokens[at..end].iter().filter_map(Token::word).collect();
            if words == ["cfg", "test"] || words == ["test"] {
                at = end + item(&tokens[end..]);
                continue;
            }
            kept.extend_from_slice(&tokens[at..end]);
            at = end;
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// How many tokens the outer attribute has that `tokens` begin with.
fn attribute(tokens: &[Token]) -> Option<usize> {
    let starts = tokens.first()?.is('#') && tokens.get(1)?.is('[');
    starts.then(|| 1 + group(&tokens[1..]))
}

/// How many tokens the bracketed group has that `tokens` begin with.
fn group(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => depth -= 1,
            Kind::Sign(_) | Kind::Word(_) | Kind::Colons | Kind::Literal(_) => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// How many tokens the item has that `tokens` begin with: to its `;`, or to the end of its braces.
fn item(tokens: &[Token]) -> usize {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.kind {
            Kind::Sign(';') => return at + 1,
            Kind::Sign('{') => return at + group(&tokens[at..]),
            Kind::Sign('(' | '[') => at += group(&tokens[at..]),
            Kind::Sign(_) | Kind::Word(_) | Kind::Colons | Kind::Literal(_) => at += 1,
        }
    }
    tokens.len()
}

/// Every path of two names or more, and all that is imported, in the file of the module `module` (`["engine", "consume"]`).
pub fn paths(tokens: &[Token], module: &[String]) -> Vec<Named> {
    let mut found = Vec::new();
    // The modules that the file opens within itself, each with the depth of braces at which it ends.
    let mut inner: Vec<(String, usize)> = Vec::new();
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(token) = tokens.get(at) {
        match &token.kind {
            Kind::Sign('{') => depth += 1,
            Kind::Sign('}') => {
                depth = depth.saturating_sub(1);
                inner.retain(|(_, ends)| *ends <= depth);
            }
            Kind::Word(word) if word == "mod" && tokens.get(at + 2).is_some_and(|next| next.is('{')) => {
                if let Some(name) = tokens.get(at + 1).and_then(Token::word) {
                    inner.push((name.to_owned(), depth + 1));
                }
                at += 1;
            }
            Kind::Word(_) | Kind::Colons => {
                let here: Vec<String> =
                    module.iter().cloned().chain(inner.iter().map(|(name, _)| name.clone())).collect();
                let import = token.word() == Some("use") && !tokens.get(at + 1).is_some_and(|next| next.is('<'));
                let (written, length) = if import {
                    let mut written = Vec::new();
                    let length = tree(&tokens[at + 1..], &[], &mut written);
                    (written, 1 + length)
                } else {
                    let (path, length) = plain(&tokens[at..]);
                    (if path.len() > 1 { vec![path] } else { Vec::new() }, length)
                };
                found.extend(
                    written.into_iter().map(|path| Named { line: token.line, path: spelt_out(path, &here, import) }),
                );
                at += length.max(1);
                continue;
            }
            Kind::Sign(_) | Kind::Literal(_) => {}
        }
        at += 1;
    }
    found
}

/// What may stand before a path that begins with `::`, and is no part of it.
const KEYWORDS: [&str; 17] = [
    "as", "break", "const", "dyn", "else", "for", "if", "impl", "in", "let", "match", "move", "mut", "ref", "return",
    "where", "while",
];

/// The names that follow one another by `::`, and how many tokens they take.
fn plain(tokens: &[Token]) -> (Vec<String>, usize) {
    if tokens.first().and_then(Token::word).is_some_and(|word| KEYWORDS.contains(&word)) {
        return (Vec::new(), 1);
    }
    let (mut path, mut at) = (Vec::new(), 0);
    if tokens.first().is_some_and(|token| token.kind == Kind::Colons) {
        at = 1;
    }
    while let Some(word) = tokens.get(at).and_then(Token::word) {
        path.push(word.to_owned());
        at += 1;
        let goes_on = tokens.get(at).is_some_and(|token| token.kind == Kind::Colons);
        if !goes_on || tokens.get(at + 1).and_then(Token::word).is_none() {
            break;
        }
        at += 1;
    }
    (path, at)
}

/// Reads one tree of an import, writes down its paths, and answers how many tokens it takes.
fn tree(tokens: &[Token], before: &[String], written: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match &token.kind {
            Kind::Word(word) if word == "as" => {
                at += 2;
                break;
            }
            // `{self}` is what stands before it.
            Kind::Word(word) if word == "self" && !path.is_empty() => at += 1,
            Kind::Word(word) => {
                path.push(word.clone());
                at += 1;
            }
            Kind::Colons => at += 1,
            Kind::Sign('*') => {
                path.push("*".to_owned());
                at += 1;
            }
            Kind::Sign('{') => {
                at += 1;
                while tokens.get(at).is_some_and(|token| !token.is('}')) {
                    at += if tokens[at].is(',') { 1 } else { tree(&tokens[at..], &path, written).max(1) };
                }
                return at + 1;
            }
            Kind::Sign(_) | Kind::Literal(_) => break,
        }
    }
    written.push(path);
    at
}

/// `crate`, `self` and `super` replaced by what they stand for in the module `here`.
fn spelt_out(path: Vec<String>, here: &[String], import: bool) -> Vec<String> {
    let from_root = |module: &[String], rest: &[String]| -> Vec<String> {
        ["crate".to_owned()].into_iter().chain(module.iter().cloned()).chain(rest.iter().cloned()).collect()
    };
    match path.first().map(String::as_str) {
        Some("self") if import || path.len() > 1 => from_root(here, &path[1..]),
        Some("super") => {
            let up = path.iter().take_while(|name| *name == "super").count();
            from_root(&here[..here.len().saturating_sub(up)], &path[up..])
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, module: &str) -> Vec<String> {
        let module: Vec<String> = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        paths(&tokens(text), &module).into_iter().map(|named| named.path.join("::")).collect()
    }

    #[test]
    fn comments_strings_and_characters_name_nothing() {
        let text = r####"
            // std::env::var
            /* std::fs /* nested std::net */ std::io */
            //! crate::storage::Store
            let _ = ("std::env \" std::fs", r#"std::net " std::io"#, br"std::env", b"std::fs", '"', '\'', b'"', '\u{1F600}');
            fn lives<'a>(text: &'a str) -> &'static str { text }
        "####;
        assert_eq!(named(text, "domain"), Vec::<String>::new());
    }

    #[test]
    fn a_path_after_an_odd_literal_is_still_found() {
        for odd in ["'\\\\'", "'\"'", "\"\\\\\"", "r\"\\\"", "r##\"\"#\"##", "b'\\''", "'a", "1e9", "\"a\nb\"", "/**/"]
        {
            assert_eq!(named(&format!("f({odd}, std::env::args());"), ""), ["std::env::args"], "{odd}");
        }
    }

    #[test]
    fn every_leaf_of_an_import_is_a_path() {
        let text = "pub(crate) use crate::{app, engine::{self, Engine as E, error::*}, storage::Store}; use std as s; use ::sqlx;";
        assert_eq!(
            named(text, "service"),
            [
                "crate::app",
                "crate::engine",
                "crate::engine::Engine",
                "crate::engine::error::*",
                "crate::storage::Store",
                "std",
                "sqlx"
            ]
        );
    }

    #[test]
    fn self_and_super_are_spelt_out() {
        assert_eq!(named("use super::super::storage::Store;", "engine::consume"), ["crate::storage::Store"]);
        assert_eq!(named("use self::inner::Thing;", "engine"), ["crate::engine::inner::Thing"]);
        assert_eq!(named("fn f() { super::storage::open(); }", "engine"), ["crate::storage::open"]);
        let text = "mod a { use super::x; mod b { use super::super::y; } use super::z; } use super::w;";
        let wanted = ["crate::engine::m::x", "crate::engine::m::y", "crate::engine::m::z", "crate::engine::w"];
        assert_eq!(named(text, "engine::m"), wanted);
    }

    #[test]
    fn paths_in_bodies_types_attributes_and_macros_are_found() {
        for text in [
            "let now = std::time::Instant::now();",
            "fn f(x: Option<std::time::Instant>) {}",
            "#[derive(std::time::Instant)] struct A;",
            "log!(\"{}\", std::time::Instant::now());",
            "impl Trait for ::std::time::Instant {}",
            "let x = Vec::<std::time::Instant>::new();",
        ] {
            assert!(named(text, "").iter().any(|path| path.starts_with("std::time::Instant")), "{text}");
        }
    }

    #[test]
    fn lines_are_those_of_the_file() {
        let text = "/* one\ntwo */\nlet a = \"three\nfour\";\nuse std::env;\n";
        assert_eq!(paths(&tokens(text), &[])[0].line, 5);
    }

    #[test]
    fn what_is_built_only_for_tests_is_cut_out() {
        let text = "use a::b; #[cfg(test)] use c::d; #[cfg(test)] #[allow(dead_code)] mod tests { use e::f; } \
                    #[test] fn t() -> [u8; 2] { g::h() } #[cfg(not(test))] use i::j; #[cfg(unix)] fn k() { l::m() }";
        let kept = paths(&without_tests(&tokens(text)), &[]);
        let kept: Vec<String> = kept.into_iter().map(|named| named.path.join("::")).collect();
        assert_eq!(kept, ["a::b", "i::j", "l::m"]);
    }

    #[test]
    fn declared_modules_are_found_with_what_they_are_for() {
        let text =
            "pub mod a; mod b { mod c; } #[cfg(test)] mod tests; // mod d;\n#[cfg(test)]\npub(super) mod testing;";
        let found: Vec<(String, bool)> =
            declared(&tokens(text)).into_iter().map(|declared| (declared.name, declared.only_tests)).collect();
        let wanted = [("a", false), ("c", false), ("tests", true), ("testing", true)];
        assert_eq!(found, wanted.map(|(name, only_tests)| (name.to_owned(), only_tests)));
    }
}
