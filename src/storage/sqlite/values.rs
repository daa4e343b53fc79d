//! How the driver takes the values of a statement and gives those of a row.

use crate::domain::audit::leaf::Stored;
use crate::domain::hex::hex;
use crate::storage::rows::{Bind, Columns, Value};
use sqlx::Row as _;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use std::borrow::Cow;

/// A statement while its values are bound.
pub(super) type Statement<'q> = Query<'q, Sqlite, SqliteArguments>;

impl Bind for Statement<'_> {
    fn bind_value(self, value: Value) -> Self {
        match value {
            Value::Text(text) => Query::bind(self, text),
            Value::Integer(integer) => Query::bind(self, integer),
        }
    }
}

impl Columns for SqliteRow {
    fn text(&self, column: &str) -> Option<Option<Cow<'_, str>>> {
        let text: Option<&str> = self.try_get(column).ok()?;
        Some(text.map(Cow::Borrowed))
    }

    fn integer(&self, column: &str) -> Option<Option<i64>> {
        self.try_get(column).ok()
    }

    fn stored(&self, column: &str) -> Option<Option<Stored>> {
        let bytes: Option<&[u8]> = self.try_get_unchecked(column).ok()?;
        Some(bytes.map(|bytes| match std::str::from_utf8(bytes) {
            Ok(text) => Stored::Text(text.to_owned()),
            Err(_) => Stored::Unreadable(hex(bytes)),
        }))
    }
}

#[cfg(test)]
mod tests;
