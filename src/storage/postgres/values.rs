//! How the driver takes the values of a statement and gives those of a row.
//!
//! The database keeps no U+0000 in a text. It is written as two other characters, of which the first is in no text that
//! Unicode has a use for; where that one itself occurs it is doubled the same way, so that any text comes back as it was.

use crate::storage::rows::{Bind, Columns, Value};
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use std::borrow::Cow;

/// What stands before the digit of an escaped character: a noncharacter.
const ESCAPE: char = '\u{10ffff}';
/// After it: U+0000.
const NUL: char = '0';
/// After it: the escape itself.
const ITSELF: char = '1';

/// A statement while its values are bound.
pub(super) type Statement<'q> = Query<'q, Postgres, PgArguments>;

impl Bind for Statement<'_> {
    fn bind_value(self, value: Value) -> Self {
        match value {
            Value::Text(text) => Query::bind(self, text.map(kept)),
            Value::Integer(integer) => Query::bind(self, integer),
        }
    }
}

/// The values of many rows, column by column, as `unnest` takes them.
#[derive(Debug)]
pub(super) struct Batch {
    columns: Vec<Column>,
}

/// One column of a [`Batch`].
#[derive(Debug)]
enum Column {
    Text(Vec<Option<String>>),
    Integer(Vec<Option<i64>>),
}

/// The next row of a [`Batch`] while its values are added.
pub(super) struct BatchRow<'b> {
    columns: std::slice::IterMut<'b, Column>,
}

impl Batch {
    /// No rows, of columns of these kinds: `t` for text, `i` for an integer.
    pub(super) fn of(kinds: &str) -> Self {
        let column = |kind| if kind == 'i' { Column::Integer(Vec::new()) } else { Column::Text(Vec::new()) };
        Self { columns: kinds.chars().map(column).collect() }
    }

    /// Begins the next row.
    pub(super) fn row(&mut self) -> BatchRow<'_> {
        BatchRow { columns: self.columns.iter_mut() }
    }

    /// Binds each column as an array.
    pub(super) fn bind_to<'q>(self, statement: Statement<'q>) -> Statement<'q> {
        self.columns.into_iter().fold(statement, |statement, column| match column {
            Column::Text(texts) => Query::bind(statement, texts),
            Column::Integer(integers) => Query::bind(statement, integers),
        })
    }
}

impl Bind for BatchRow<'_> {
    fn bind_value(mut self, value: Value) -> Self {
        match (self.columns.next(), value) {
            (Some(Column::Text(texts)), Value::Text(text)) => texts.push(text.map(kept)),
            (Some(Column::Integer(integers)), Value::Integer(integer)) => integers.push(integer),
            // A binder that is not of these columns: the columns are then not of one length, and the statement is refused.
            (column, value) => debug_assert!(false, "{value:?} in {column:?}"),
        }
        self
    }
}

impl Columns for PgRow {
    fn text(&self, column: &str) -> Option<Option<Cow<'_, str>>> {
        let text: Option<&str> = self.try_get(column).ok()?;
        match text {
            None => Some(None),
            Some(text) => given(text).map(Some),
        }
    }

    fn integer(&self, column: &str) -> Option<Option<i64>> {
        self.try_get(column).ok()
    }
}

/// A text as the database keeps it.
pub(super) fn kept(text: String) -> String {
    if !text.contains(['\0', ESCAPE]) {
        return text;
    }
    let mut kept = String::with_capacity(text.len().saturating_add(8));
    for letter in text.chars() {
        match letter {
            '\0' => kept.extend([ESCAPE, NUL]),
            ESCAPE => kept.extend([ESCAPE, ITSELF]),
            letter => kept.push(letter),
        }
    }
    kept
}

/// The text that is kept so; none if none is.
fn given(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(ESCAPE) {
        return Some(Cow::Borrowed(text));
    }
    let mut given = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        given.push(match letter {
            ESCAPE => match letters.next()? {
                NUL => '\0',
                ITSELF => ESCAPE,
                _ => return None,
            },
            letter => letter,
        });
    }
    Some(Cow::Owned(given))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[\\x0001a\u{10ffff}\u{10fffe}]{0,12}"]
    }

    #[test]
    fn what_the_database_would_refuse_is_not_kept_as_it_is() {
        for (text, as_kept) in [
            ("", ""),
            ("plain", "plain"),
            ("a\0b", "a\u{10ffff}0b"),
            ("\u{10ffff}", "\u{10ffff}1"),
            ("\u{10ffff}0", "\u{10ffff}10"),
            ("\0\u{10ffff}", "\u{10ffff}0\u{10ffff}1"),
        ] {
            assert_eq!(kept(text.to_owned()), as_kept);
            assert_eq!(given(as_kept).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_never_kept_is_no_text() {
        for broken in ["\u{10ffff}", "a\u{10ffff}", "\u{10ffff}2", "\u{10ffff}\u{10ffff}"] {
            assert_eq!(given(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn rows_of_mixed_kinds_become_columns() {
        let mut batch = Batch::of("titi");
        batch.row().bind("first").bind(1).bind(Some("a\0b")).bind(true);
        batch.row().bind("second".to_owned()).bind(None::<i64>).bind(None::<String>).bind(false);
        assert_eq!(
            format!("{:?}", batch.columns),
            "[Text([Some(\"first\"), Some(\"second\")]), Integer([Some(1), None]), \
             Text([Some(\"a\\u{10ffff}0b\"), None]), Integer([Some(1), Some(0)])]"
        );
    }

    proptest! {
        #[test]
        fn any_text_comes_back_as_it_was(text in text()) {
            let as_kept = kept(text.clone());
            prop_assert!(!as_kept.contains('\0'));
            let given = given(&as_kept);
            prop_assert_eq!(given.as_deref(), Some(text.as_str()));
        }
    }
}
