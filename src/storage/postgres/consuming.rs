//! Passing the gate with an approval: calls that wait at the same time go into one statement.

use super::table::Table;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::ApprovalId;
use crate::storage::{Accepting, StoreError};

/// See `Store::consume`.
#[derive(Debug)]
pub(super) struct Consume {
    pub(super) start: Start,
    pub(super) approval: ApprovalId,
    pub(super) accepting: Accepting,
}

/// Where calls wait for their statement.
#[derive(Debug)]
pub(super) struct Consumer {
    table: Table,
}

impl Consumer {
    pub(super) fn start(table: Table) -> Self {
        Self { table }
    }

    pub(super) async fn consume(&self, call: Consume) -> Result<Option<Execution>, StoreError> {
        let _ = (&self.table, call);
        Err(StoreError::Unavailable { cause: "not built".to_owned() })
    }

    pub(super) async fn close(&self) {}
}
