//! How statements are run.

use super::*;
use sqlx::PgConnection;

/// How each statement is run where nothing is known of its values, and no table is read whole that has an index to go by.
async fn plans() -> Vec<(&'static str, String)> {
    let database = fresh().await;
    let mut connection = database.connect().await;
    for setting in ["plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_bitmapscan = off"] {
        query(AssertSqlSafe(format!("SET {setting}"))).execute(&mut connection).await.unwrap();
    }
    let mut plans = Vec::new();
    let of_transactions = transaction::ALL.into_iter().flatten().copied();
    for statement in
        reads::ALL.into_iter().chain(listing::ALL).chain(sweeps::ALL).chain(seals::ALL).chain(of_transactions)
    {
        plans.push((statement, plan(&mut connection, statement).await));
    }
    plans
}

async fn plan(connection: &mut PgConnection, statement: &'static str) -> String {
    let values = (1..).take_while(|number| statement.contains(&format!("${number}"))).count();
    let values = if values == 0 { String::new() } else { format!("({})", vec!["NULL"; values].join(", ")) };
    let prepared = AssertSqlSafe(format!("PREPARE looked_at AS {statement}"));
    sqlx::raw_sql(prepared).execute(&mut *connection).await.unwrap();
    let explained = AssertSqlSafe(format!("EXPLAIN (COSTS off) EXECUTE looked_at {values}"));
    let rows = sqlx::raw_sql(explained).fetch_all(&mut *connection).await.unwrap();
    sqlx::raw_sql("DEALLOCATE looked_at").execute(&mut *connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    for (statement, plan) in plans().await {
        let scanned = plan.lines().find(|step| step.contains("Seq Scan on ") && !step.contains("Seq Scan on keys"));
        assert!(scanned.is_none(), "{scanned:?} of {statement}\n{plan}");
        // An index is read whole where nothing is sought in it: up to a limit, its oldest or its newest.
        let steps: Vec<&str> = plan.lines().collect();
        for step in steps.windows(2).filter(|step| step[0].contains(" using ") || step[0].contains("Bitmap Index Scan"))
        {
            let in_order = ["approvals_pending", "approval_arguments_by_key", "audit_records_pkey"];
            let may_be_whole = in_order.iter().any(|index| step[0].contains(index)) && statement.contains("LIMIT");
            assert!(step[1].contains("Index Cond") || may_be_whole, "{} of {statement}\n{plan}", step[0]);
        }
    }
}

#[tokio::test]
async fn the_hot_statements_use_their_index() {
    let plans = plans().await;
    let mut unused = Vec::new();
    for (index, sought) in [
        ("approval_audience_newest", "state = wanted"),
        ("approval_audience_by_deadline", "open_until >= wanted"),
        ("approvals_pkey", "(id = $2)"),
        ("approval_audience_pkey", "(approval_id = $2)"),
        ("request_ids_pkey", "(request_id = $5)"),
        ("executions_by_attempt", "(attempt_id = $6)"),
        ("executions_newest", "ROW(start_time, id) < ROW($2, $3)"),
        ("audit_records_by_approval", "(approval_id = $2)"),
        ("audit_records_by_execution", "(execution_id = $3)"),
        ("audit_records_by_wait", "(wait_id = $4)"),
        ("audit_records_by_principal", "(principal = $5)"),
        ("approvals_by_wait", "(wait_id = waits.id)"),
        ("approvals_open_by_wait", "(open_until > "),
        ("approvals_by_deadline", "open_until <= "),
        ("executions_by_deadline", "report_by <= "),
        ("approvals_to_erase", "COALESCE(consume_time, close_time, decide_time) <= "),
        ("approvals_to_delete", "COALESCE(consume_time, close_time, decide_time) <= "),
        ("executions_to_delete", "COALESCE(report_time, report_by) <= "),
        ("approvals_retrying", "(retry_of = executions.id)"),
        ("waits_to_delete", "close_time <= "),
        ("approval_arguments_by_key", ""),
        ("waits_active", "(objective_transcript = $3)"),
        ("waits_by_deadline", "expire_time <= "),
        ("approvals_same_question", "(fingerprint = $11)"),
        ("approvals_open_by_agent", "(open_until > $3)"),
        ("audit_records_asked", "(\"time\" > $2)"),
        ("approvals_denied", "(decide_time > $3)"),
        ("approvals_open_by_wait", "(open_until > $2)"),
    ] {
        let used = plans.iter().any(|(_, plan)| {
            let steps: Vec<&str> = plan.lines().collect();
            steps.windows(2).any(|steps| steps[0].contains(index) && steps[1].contains(sought))
        });
        if !used {
            unused.push((index, sought));
        }
    }
    assert!(unused.is_empty(), "nothing seeks {unused:#?}");
}
