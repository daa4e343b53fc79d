//! How the driver takes the values of a statement and gives those of a row.
//!
//! The database keeps no U+0000 in a text. It is written as two other characters, of which the first is in no text that
//! Unicode has a use for; where that one itself occurs it is doubled the same way, so that any text comes back as it was. No
//! identifier has either of them.

use crate::domain::audit::leaf::Stored;
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

    fn stored(&self, column: &str) -> Option<Option<Stored>> {
        let text: Option<&str> = self.try_get(column).ok()?;
        Some(text.map(|text| match given(text) {
            Some(given) => Stored::Text(given.into_owned()),
            None => Stored::Unreadable(text.to_owned()),
        }))
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
mod tests;
