//! YAML as a tree in which every value knows its line and column. A policy needs only the plain part of YAML 1.2: what
//! could make a text mean something else than it seems (duplicate keys, anchors and aliases, merge keys, tags, several
//! documents, characters that cannot be seen) is refused, and so is what is too large or too deep.

use super::problem::{Problem, shown, write_key};
use crate::domain::text::is_hidden;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A policy of thousands of actions fits; a file that somebody dropped there by mistake does not.
pub const FILE_BYTES: usize = 1024 * 1024;
/// Values and keys of one file: bounds the memory that a file can take to a small multiple of its size.
const NODES: usize = 200_000;
/// The formats themselves need eight; the tree's users may recurse.
const DEPTH: usize = 32;

/// Where a value starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The line, from 1.
    pub(super) line: usize,
    /// The column in characters, from 1.
    pub(super) column: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
}

/// A value of the tree.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A text; `plain` if it was written without quotes, so that it can be a number, a flag or nothing at all.
    Scalar { text: String, plain: bool },
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the file's order, each key once.
    Map(Vec<Member>),
    /// A value that was refused, about which nothing more needs saying.
    Refused,
}

/// A member of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) at: Place,
    pub(super) node: Node,
}

/// Reads one document. Problems are added to `problems`; none where there is nothing that could be read further.
pub(super) fn parse(file: &str, text: &str, problems: &mut Vec<Problem>) -> Option<Node> {
    if text.len() > FILE_BYTES {
        let size = text.len();
        problems.push(Problem::of_file(file, format!("has {size} bytes; at most {FILE_BYTES} are read")));
        return None;
    }
    if let Some(problem) = hidden_character(file, text) {
        problems.push(problem);
        return None;
    }
    let mut builder = Builder { file, problems, open: Vec::new(), root: None, documents: 0, nodes: 0 };
    // The parser is another's: should a text make it panic, this file is refused and the service lives on.
    match catch_unwind(AssertUnwindSafe(|| builder.read(text))) {
        Ok(Some(())) => {}
        Ok(None) => return None,
        Err(_) => {
            problems.push(Problem::of_file(file, "cannot be read as YAML"));
            return None;
        }
    }
    let root = builder.root.take();
    if root.is_none() {
        problems.push(Problem::of_file(file, "is empty"));
    }
    root
}

/// The first character that lets a text be read otherwise than it loads, in comments too: a lone carriage return or a line
/// separator ends a comment for some and not for others, a bidirectional control shows a line in another order. Ends of
/// lines may be CR LF, and the text may begin with a byte order mark.
fn hidden_character(file: &str, text: &str) -> Option<Problem> {
    let (mut line, mut column) = (1, 0);
    let mut characters = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    while let Some(character) = characters.next() {
        column += 1;
        match character {
            '\n' => (line, column) = (line + 1, 0),
            '\t' => {}
            '\r' if characters.peek() == Some(&'\n') => {}
            _ if is_hidden(character) => {
                let code = u32::from(character);
                let message = match character {
                    '\r' => "has a carriage return that no line feed follows".to_owned(),
                    _ => format!(
                        "has the character U+{code:04X}, which cannot be seen; in double quotes, write its escape"
                    ),
                };
                return Some(Problem { file: file.to_owned(), line, column, key: String::new(), message });
            }
            _ => {}
        }
    }
    None
}

struct Builder<'a> {
    file: &'a str,
    problems: &'a mut Vec<Problem>,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
}

/// A list or mapping that has begun and not ended.
enum Open {
    List { at: Place, items: Vec<Node> },
    Map { at: Place, members: Vec<Member>, lines: HashMap<String, usize>, key: Key },
}

/// What a mapping waits for.
enum Key {
    /// A key.
    Missing,
    /// The value of this one.
    Given(String, Place),
    /// A value that is thrown away, as its key was refused.
    Refused,
}

impl Builder<'_> {
    /// Reads all events; none where reading cannot go on.
    fn read(&mut self, text: &str) -> Option<()> {
        for event in Parser::new_from_str(text) {
            match event {
                Ok((event, span)) => self.take(event, span)?,
                Err(error) => {
                    let at = Place { line: error.marker().line(), column: error.marker().col() + 1 };
                    self.problem(at, format!("is no YAML: {}", error.info()));
                    return None;
                }
            }
        }
        Some(())
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let at = Place { line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.problem(at, "starts a second document; a file is one");
                    return None;
                }
            }
            Event::Alias(_) => {
                self.problem(at, "is an alias; write the value out");
                self.put(Node { at, value: Value::Refused })?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let refused = self.refuses(at, anchor, tag.is_some());
                let plain = style == ScalarStyle::Plain;
                let value = if refused { Value::Refused } else { Value::Scalar { text: text.into_owned(), plain } };
                self.put(Node { at, value })?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuses(at, anchor, tag.is_some());
                self.begin(Open::List { at, items: Vec::new() }, at)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.refuses(at, anchor, tag.is_some());
                let lines = HashMap::new();
                self.begin(Open::Map { at, members: Vec::new(), lines, key: Key::Missing }, at)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.open.pop()? {
                    Open::List { at, items } => Node { at, value: Value::List(items) },
                    Open::Map { at, members, .. } => Node { at, value: Value::Map(members) },
                };
                self.put(node)?;
            }
        }
        Some(())
    }

    /// Whether an anchor or a tag makes this value one that is not read.
    fn refuses(&mut self, at: Place, anchor: usize, tagged: bool) -> bool {
        if anchor != 0 {
            self.problem(at, "has an anchor (`&`); write the value out where it is needed");
        }
        if tagged {
            self.problem(at, "has a tag (`!`); the format has none");
        }
        anchor != 0 || tagged
    }

    fn begin(&mut self, open: Open, at: Place) -> Option<()> {
        if self.open.len() >= DEPTH {
            self.problem(at, format!("is nested deeper than {DEPTH}"));
            return None;
        }
        self.open.push(open);
        Some(())
    }

    /// Puts a finished value where it belongs: into the list or mapping around it, as a key, or at the root.
    fn put(&mut self, node: Node) -> Option<()> {
        self.nodes += 1;
        if self.nodes > NODES {
            self.problem(node.at, format!("is one value too many: a file has at most {NODES}"));
            return None;
        }
        let mut problem = None;
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { members, lines, key, .. }) => match std::mem::replace(key, Key::Missing) {
                Key::Given(name, at) => members.push(Member { key: name, at, node }),
                Key::Refused => {}
                Key::Missing => match as_key(node, lines) {
                    Ok((name, at)) => *key = Key::Given(name, at),
                    Err(refused) => {
                        *key = Key::Refused;
                        problem = refused;
                    }
                },
            },
        }
        if let Some((at, message)) = problem {
            self.problem(at, message);
        }
        Some(())
    }

    fn problem(&mut self, at: Place, message: impl Into<String>) {
        let (file, key) = (self.file.to_owned(), self.path());
        self.problems.push(Problem { file, line: at.line, column: at.column, key, message: message.into() });
    }

    /// The dotted path of what is being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match open {
                Open::List { items, .. } => _ = write!(path, "[{}]", items.len()),
                Open::Map { key: Key::Given(name, _), .. } => {
                    let first = path.is_empty();
                    _ = write_key(&mut path, first, name);
                }
                Open::Map { .. } => {}
            }
        }
        path
    }
}

/// The key that a value makes; else what is wrong with it, unless that has been said.
fn as_key(node: Node, lines: &mut HashMap<String, usize>) -> Result<(String, Place), Option<(Place, String)>> {
    let at = node.at;
    match node.value {
        Value::Scalar { text, plain: true } if text == "<<" => {
            Err(Some((at, "merge keys (`<<`) are not read; write the members out".to_owned())))
        }
        Value::Scalar { text, plain } if is_null(&text, plain) => {
            Err(Some((at, "has a member without a key".to_owned())))
        }
        Value::Scalar { text, .. } => match lines.get(&text) {
            Some(first) => Err(Some((at, format!("{} is given twice, first on line {first}", shown(&text))))),
            None => {
                lines.insert(text.clone(), at.line);
                Ok((text, at))
            }
        },
        Value::List(_) | Value::Map(_) => Err(Some((at, "has a key that is not a text".to_owned()))),
        Value::Refused => Err(None),
    }
}

/// Whether a scalar is YAML's null.
pub(super) fn is_null(text: &str, plain: bool) -> bool {
    plain && matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        parse("f", text, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    fn show(node: &Node) -> String {
        match &node.value {
            Value::Scalar { text, plain } => format!("{}{text}", if *plain { "" } else { "'" }),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
            Value::Map(members) => {
                let members: Vec<String> = members.iter().map(|m| format!("{}:{}", m.key, show(&m.node))).collect();
                format!("{{{}}}", members.join(","))
            }
            Value::Refused => "refused".to_owned(),
        }
    }

    fn read(text: &str) -> String {
        let mut problems = Vec::new();
        let node = parse("f", text, &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        show(&node.unwrap())
    }

    #[test]
    fn plain_words_stay_the_text_that_was_written() {
        assert_eq!(read("a: no\nb: [0x10, 1.0, 'yes', ~]\nc: {d: \"e\"}"), "{a:no,b:[0x10,1.0,'yes,~],c:{d:'e}}");
        assert_eq!(read("\u{feff}---\na: |\n  x\n  y\n...\n"), "{a:'x\ny\n}");
    }

    #[test]
    fn a_duplicate_key_is_refused_wherever_it_stands() {
        assert_eq!(
            problems("a: 1\nb: {c: 1, 'c': 2}\na: 3\n"),
            ["f:2:11: b: \"c\" is given twice, first on line 2", "f:3:1: \"a\" is given twice, first on line 1"]
        );
    }

    #[test]
    fn what_makes_a_text_mean_something_else_is_refused() {
        assert_eq!(
            problems("a: &x {b: 1}\nc: *x\nd:\n  <<: *x\ne: !!str 1\n? [f]\n: 1\n: 2\n"),
            [
                "f:1:4: a: has an anchor (`&`); write the value out where it is needed",
                "f:2:4: c: is an alias; write the value out",
                "f:4:3: d: merge keys (`<<`) are not read; write the members out",
                "f:4:7: d: is an alias; write the value out",
                "f:5:4: e: has a tag (`!`); the format has none",
                "f:6:3: has a key that is not a text",
                "f:8:1: has a member without a key",
            ]
        );
    }

    #[test]
    fn what_cannot_be_seen_is_refused_in_comments_too() {
        assert_eq!(
            problems("a: 1\n# é\r  b: never\n"),
            ["f:2:4: has a carriage return that no line feed follows"],
            "some readers end the comment there"
        );
        assert_eq!(problems("# a\r\r\na: 1\n"), ["f:1:4: has a carriage return that no line feed follows"]);
        assert_eq!(problems("a: 1\r"), ["f:1:5: has a carriage return that no line feed follows"]);
        for (character, code) in [
            ('\u{85}', "U+0085"),
            ('\u{2028}', "U+2028"),
            ('\u{2029}', "U+2029"),
            ('\u{202e}', "U+202E"),
            ('\u{2066}', "U+2066"),
            ('\u{200b}', "U+200B"),
            ('\u{ad}', "U+00AD"),
            ('\u{feff}', "U+FEFF"),
            ('\u{e0061}', "U+E0061"),
            ('\0', "U+0000"),
            ('\u{b}', "U+000B"),
            ('\u{c}', "U+000C"),
            ('\u{1b}', "U+001B"),
            ('\u{7f}', "U+007F"),
        ] {
            let want =
                format!("f:2:5: has the character {code}, which cannot be seen; in double quotes, write its escape");
            for line in [format!("# é {character}b: 1"), format!("b: '{character}'"), format!("b: |{character}\n  x")]
            {
                let text = format!("a: 1\n{line}\n");
                assert_eq!(problems(&text), std::slice::from_ref(&want), "{text:?}");
            }
        }
    }

    #[test]
    fn windows_line_ends_a_leading_mark_tabs_and_escapes_are_read() {
        assert_eq!(read("\u{feff}a: 1 # é\t日本\r\nb: \"\\u202e\\r\"\r\n"), "{a:1,b:'\u{202e}\r}");
    }

    #[test]
    fn a_second_document_and_an_empty_file_are_refused() {
        assert_eq!(problems("a: 1\n---\na: 2\n"), ["f:2:1: starts a second document; a file is one"]);
        assert_eq!(problems("# nothing\n"), ["f: is empty"]);
        assert_eq!(problems(""), ["f: is empty"]);
    }

    #[test]
    fn size_depth_and_number_of_values_are_bounded() {
        for (text, part) in [
            (format!("a: {}", "[".repeat(100_000)), "recursion limit"),
            (format!("a: {}", "[\n  ".repeat(100)), "deeper than"),
            (format!("{}a", "- ".repeat(100_000)), "deeper than"),
            ((0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>(), "deeper than"),
            (format!("a: [{}]", "1,".repeat(300_000)), "one value too many"),
            ("#".repeat(FILE_BYTES + 1), "at most 1048576"),
        ] {
            let problems = problems(&text);
            assert!(problems.len() == 1 && problems[0].contains(part), "{problems:?}");
        }
    }

    #[test]
    fn a_syntax_error_says_where() {
        let problems = problems("a: 1\nb: [1\nc: 2\n");
        assert!(
            problems.len() == 1 && problems[0].starts_with("f:") && problems[0].contains("is no YAML"),
            "{problems:?}"
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[-a:,\\[\\]{}&*!|>'\"?#%@<~ \n\t.0\u{85}\u{feff}\u{2028}]{0,60}") {
            let mut problems = Vec::new();
            let node = parse("f", &text, &mut problems);
            assert!(node.is_some() || !problems.is_empty());
            assert!(problems.iter().all(|p| p.message != "cannot be read as YAML"), "{text:?}");
        }
    }
}
