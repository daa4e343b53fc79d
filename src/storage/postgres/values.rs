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
#[derive(Debug, Default)]
pub(super) struct Batch {
    columns: Vec<Column>,
    rows: usize,
}

/// One column of a [`Batch`].
#[derive(Debug)]
enum Column {
    Text(Vec<Option<String>>),
    Integer(Vec<Option<i64>>),
}

/// The next row of a [`Batch`] while its values are added. Every row has values of the same kinds in the same order.
pub(super) struct BatchRow<'b> {
    batch: &'b mut Batch,
    next: usize,
}

impl Batch {
    /// Begins the next row.
    pub(super) fn row(&mut self) -> BatchRow<'_> {
        self.rows = self.rows.saturating_add(1);
        BatchRow { batch: self, next: 0 }
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
        let index = self.next;
        self.next = index.saturating_add(1);
        match (self.batch.columns.get_mut(index), value) {
            (None, Value::Text(text)) => self.batch.columns.push(Column::Text(vec![text.map(kept)])),
            (None, Value::Integer(integer)) => self.batch.columns.push(Column::Integer(vec![integer])),
            (Some(Column::Text(texts)), Value::Text(text)) => texts.push(text.map(kept)),
            (Some(Column::Integer(integers)), Value::Integer(integer)) => integers.push(integer),
            // A value of another kind than the column's: NULL, which no column of ours that is so used takes.
            (Some(Column::Text(texts)), Value::Integer(_)) => texts.push(None),
            (Some(Column::Integer(integers)), Value::Text(_)) => integers.push(None),
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
