//! For measurements, and no part of the store's contract: filling a table fast, and consuming without the group.

use super::PostgresStore;
use super::consuming::{Consume, ConsumeTogether, Outcome};
use super::table::{Fault, Operation};
use super::time::TableTime;
use super::values::Batch;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::ApprovalId;
use crate::storage::changes::Touched;
use crate::storage::rows::Bind as _;
use crate::storage::seeding::ApprovalCopy;
use crate::storage::seeding::copied_columns;
use crate::storage::{Accepting, StoreError};
use async_trait::async_trait;
use sqlx::{Connection as _, PgConnection, query};
use std::sync::Arc;

const COPY_APPROVAL: &str = concat!(
    "INSERT INTO approvals (id, fingerprint, arguments_digest, update_time, ",
    copied_columns!(),
    ") SELECT copy.id, copy.fingerprint, copy.arguments_digest, update_time, ",
    copied_columns!(),
    " FROM unnest($2::TEXT[], $3::TEXT[], $4::TEXT[]) AS copy (id, fingerprint, arguments_digest) \
     CROSS JOIN (SELECT update_time, ",
    copied_columns!(),
    " FROM approvals WHERE id = $1) template"
);
const COPY_DECISIONS: &str = "INSERT INTO approval_decisions
    (approval_id, sequence, person, groups, as_owner, verdict, reason, caller, decide_time)
    SELECT copy.id, sequence, person, groups, as_owner, verdict, reason, caller, decide_time
    FROM unnest($2::TEXT[]) AS copy (id) CROSS JOIN approval_decisions WHERE approval_id = $1";
const COPY_AUDIENCE: &str = "INSERT INTO approval_audience (approval_id, kind, name, state, create_time, open_until)
    SELECT copy.id, kind, name, state, create_time, open_until
    FROM unnest($2::TEXT[]) AS copy (id) CROSS JOIN approval_audience WHERE approval_id = $1";

/// Copies of one approval.
struct Copies {
    template: ApprovalId,
    copies: Vec<ApprovalCopy>,
}

#[async_trait]
impl Operation for Copies {
    type Answer = ();

    async fn run(&self, connection: &mut PgConnection, _: &TableTime, _: &mut Touched) -> Result<(), Fault> {
        let mut transaction = connection.begin().await?;
        let template = self.template.to_string();
        let ids = || {
            let mut ids = Batch::of("t");
            for copy in &self.copies {
                ids.row().bind(copy.id.to_string());
            }
            ids
        };
        let mut rows = Batch::of("ttt");
        for copy in &self.copies {
            let row = rows.row().bind(copy.id.to_string()).bind(copy.fingerprint.to_string());
            row.bind(copy.arguments.to_string());
        }
        rows.bind_to(query(COPY_APPROVAL).bind(template.clone())).execute(&mut *transaction).await?;
        for statement in [COPY_DECISIONS, COPY_AUDIENCE] {
            ids().bind_to(query(statement).bind(template.clone())).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}

impl PostgresStore {
    /// Copies the approval `template`, with its decisions and audience, in one transaction. Some ten thousand copies are
    /// written within the time that one statement may take.
    ///
    /// # Errors
    /// The store; an id that is there already.
    #[doc(hidden)]
    pub async fn seed(&self, template: ApprovalId, copies: &[ApprovalCopy]) -> Result<(), StoreError> {
        self.table.run(Copies { template, copies: copies.to_vec() }).await
    }

    /// Has the planner know what is in the table now.
    ///
    /// # Errors
    /// The store.
    #[doc(hidden)]
    pub async fn analyse(&self) -> Result<(), StoreError> {
        self.table.run(Analyse).await
    }

    /// Consumes as [`crate::storage::Store::consume`] does, in a statement and a commit of its own: what grouping is
    /// measured against.
    ///
    /// # Errors
    /// The store.
    #[doc(hidden)]
    pub async fn consume_alone(&self, start: Start, accepting: Accepting) -> Result<Option<Execution>, StoreError> {
        let Some(approval) = start.approval else { return Ok(None) };
        let call = Arc::new(Consume { start, approval, accepting });
        let mut outcomes = self.table.run(ConsumeTogether(vec![call])).await?;
        Ok(match outcomes.pop() {
            Some(Outcome::Answered(execution)) => execution.map(|execution| *execution),
            Some(Outcome::Apart) | None => None,
        })
    }
}

/// See [`PostgresStore::analyse`].
struct Analyse;

#[async_trait]
impl Operation for Analyse {
    type Answer = ();

    async fn run(&self, connection: &mut PgConnection, _: &TableTime, _: &mut Touched) -> Result<(), Fault> {
        for statement in
            ["ANALYZE approvals", "ANALYZE approval_audience", "ANALYZE executions", "ANALYZE audit_records"]
        {
            query(statement).execute(&mut *connection).await?;
        }
        Ok(())
    }
}
