//! How statements are run, what readers may do, and what a row must be.

use super::*;
use crate::domain::ids::WaitId;
use crate::domain::wait::Opening;
use crate::storage::conformance::{
    Fixture, NO_LIMITS, approval_id, id, question, sealed_arguments, start, start_of, subject,
};
use uuid::Uuid;

#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let mut reader = store.reader().await.unwrap();
    let all = reads::ALL
        .into_iter()
        .chain(writes::ALL)
        .chain(consuming::ALL)
        .chain(listing::ALL)
        .chain(sealed::ALL)
        .chain(fatigue::ALL);
    for statement in all.chain(sweeps::ALL).chain(waits::ALL).chain(seals::ALL) {
        let explained = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let plan: Vec<String> = query(explained)
            .fetch_all(&mut *reader)
            .await
            .unwrap()
            .iter()
            .map(|row| row.get::<String, _>("detail"))
            .collect();
        for step in &plan {
            // Few rows each, and no more in years: migrations, secrets. Lists of ids and what a statement itself yields.
            let small =
                ["schema_migrations", "keys", "json_each", "SCAN gap", "(subquery", "CONSTANT ROW", "SCAN used"];
            // The newest, or the oldest, first, up to a limit.
            let in_order = (statement.contains("LIMIT") && statement.contains("ORDER BY"))
                && [
                    "SCAN audit_records",
                    "SCAN approvals",
                    "SCAN executions",
                    "SCAN approvals USING COVERING INDEX approvals_pending",
                ]
                .contains(&step.as_str());
            let scans = step.starts_with("SCAN") && !small.iter().any(|small| step.contains(small)) && !in_order;
            assert!(!scans, "{step}\nof {statement}\n{plan:#?}");
            let sorts = step.contains("TEMP B-TREE");
            let may_sort = ["AS decisions", "FROM keys", "approval_audience_by_deadline"];
            let may_sort = may_sort.iter().any(|few| statement.contains(few));
            assert!(!sorts || may_sort, "{step}\nof {statement}\n{plan:#?}");
        }
    }
}

#[tokio::test]
async fn the_hot_statements_use_their_index() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let mut reader = store.reader().await.unwrap();
    for (table, index) in [
        (
            reads::ALL.as_slice(),
            "COVERING INDEX approval_audience_newest (kind=? AND name=? AND state=? AND (create_time",
        ),
        (
            reads::ALL.as_slice(),
            "COVERING INDEX approval_audience_by_deadline (kind=? AND name=? AND state=? AND open_until>? AND open_until<?)",
        ),
        (sweeps::ALL.as_slice(), "approvals_by_deadline (open_until<?)"),
        (sweeps::ALL.as_slice(), "executions_by_deadline (report_by<?)"),
        (sweeps::ALL.as_slice(), "approvals_to_erase (<expr><?)"),
        (sweeps::ALL.as_slice(), "approvals_to_delete (<expr><?)"),
        (sweeps::ALL.as_slice(), "executions_to_delete (<expr><?)"),
        (sweeps::ALL.as_slice(), "approvals_retrying (retry_of=?)"),
        (sweeps::ALL.as_slice(), "waits_to_delete (close_time<?)"),
        (reads::ALL.as_slice(), "executions_by_attempt"),
        (reads::ALL.as_slice(), "audit_records_by_approval"),
        (reads::ALL.as_slice(), "audit_records_by_execution"),
        (reads::ALL.as_slice(), "audit_records_by_principal"),
        (reads::ALL.as_slice(), "audit_records_by_wait"),
        (waits::ALL.as_slice(), "waits_active (principal=? AND agent=? AND objective_transcript=?)"),
        (waits::ALL.as_slice(), "COVERING INDEX approvals_by_wait (wait_id=?)"),
        (waits::ALL.as_slice(), "approvals_open_by_wait (wait_id=? AND open_until>?)"),
        (waits::ALL.as_slice(), "waits_by_deadline (expire_time<?)"),
        (writes::ALL.as_slice(), "approvals_same_question (requested_by=? AND principal=? AND fingerprint=?"),
        (
            writes::ALL.as_slice(),
            "COVERING INDEX approvals_open_by_principal (requested_by=? AND principal=? AND open_until>?)",
        ),
        (
            writes::ALL.as_slice(),
            "COVERING INDEX approvals_open_by_agent (requested_by=? AND agent=? AND open_until>?)",
        ),
        (fatigue::ALL.as_slice(), "approvals_open_by_principal (requested_by=? AND principal=? AND open_until>?)"),
        (fatigue::ALL.as_slice(), "COVERING INDEX audit_records_asked (principal=? AND time>?)"),
        (fatigue::ALL.as_slice(), "approvals_denied (principal=? AND fingerprint=? AND decide_time>?)"),
        (consuming::ALL.as_slice(), "executions_by_attempt"),
        (listing::ALL.as_slice(), "INDEX executions_newest ((start_time,id)>(?,?) AND (start_time,id)<(?,?))"),
        (listing::ALL.as_slice(), "audit_records_by_approval"),
    ] {
        let mut plans = Vec::new();
        for statement in table {
            let explained = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            let plan = query(explained).fetch_all(&mut *reader).await.unwrap();
            plans.extend(plan.iter().map(|row| row.get::<String, _>("detail")));
        }
        let used = plans.iter().any(|step| step.contains(index));
        assert!(used, "no statement uses {index}: {plans:#?}");
    }
}

#[tokio::test]
async fn a_reader_cannot_write() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let mut reader = store.reader().await.unwrap();
    let error = query("DELETE FROM audit_records").execute(&mut *reader).await.unwrap_err();
    assert!(error.to_string().contains("readonly"), "{error}");
}

#[tokio::test]
async fn connections_are_set_up_as_promised() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let mut reader = store.reader().await.unwrap();
    let mut writer = open::writer_options(&folder.database()).connect().await.unwrap();
    let wanted = [
        ("PRAGMA journal_mode", "wal"),
        ("PRAGMA synchronous", "2"),
        ("PRAGMA foreign_keys", "1"),
        ("PRAGMA trusted_schema", "0"),
        ("PRAGMA application_id", "1129531214"),
    ];
    for connection in [&mut *reader, &mut writer] {
        for (pragma, value) in wanted {
            let row = query(pragma).fetch_one(&mut *connection).await.unwrap();
            let found = row.try_get::<String, _>(0).unwrap_or_else(|_| row.get::<i64, _>(0).to_string());
            assert_eq!(found, value, "{pragma}");
        }
    }
    assert_eq!(schema::APPLICATION_ID, 1_129_531_214);
}

#[tokio::test]
async fn a_busy_reader_is_unavailable_and_its_place_comes_free() {
    let folder = Folder::new();
    let store = open_with(&folder, |options| {
        options.readers = 1;
        options.acquire_timeout = Duration::from_millis(100);
        options.statement_timeout = Duration::from_millis(100);
    });
    let store = store.await.unwrap();
    let held = store.reader().await.unwrap();
    let error = store.approval(approval_id()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    drop(held);
    let mut reader = store.reader().await.unwrap();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) \
                   SELECT count(*) FROM n";
    let outcome = store
        .within(async {
            query(endless).fetch_one(&mut *reader).await?;
            Ok(())
        })
        .await;
    let error = finish(reader, outcome).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    // The place is free once the statement has ended by itself.
    for attempt in 0.. {
        match store.time().await {
            Ok(_) => break,
            Err(error) => assert!(attempt < 100, "{error}"),
        }
    }
}

/// Breaks a row with checks off, as another program or a faulty disk could.
async fn scribble(folder: &Folder, statement: String) {
    let mut connection = open::writer_options(&folder.database()).connect().await.unwrap();
    sqlx::raw_sql("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF")
        .execute(&mut connection)
        .await
        .unwrap();
    let done = query(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    assert_eq!(done.rows_affected(), 1);
    connection.close().await.unwrap();
}

#[tokio::test]
async fn an_approval_that_fits_no_state_is_corrupt() {
    for broken in [
        "state = 'done'",
        "state = 'approved'",
        "decide_time = 1",
        "use_by = 1",
        "consume_time = 1",
        "close_time = 1",
        "closed_by = 'x'",
        "state_reason = 'x'",
        "execution_id = '0190b6c0-0000-7000-8000-00000000000a'",
        "execution_id = 'x'",
        "principal = ''",
        "principal = ' x'",
        "conversation = ''",
        "objective_id = NULL",
        "objective_revision = -1",
        "fingerprint = 'v2:00'",
        "arguments_digest = 'x'",
        "tool_definition_digest = 'x'",
        "labels = '[]'",
        "labels = 'x'",
        "tags = '{}'",
        "scope = 'root'",
        "reason = 'BECAUSE'",
        "rules = '[{\"connector\":\"a\",\"name\":\"b\",\"effect\":\"allow\"}]'",
        "rules = '[{\"connector\":\"a\",\"name\":\"b\",\"effect\":\"deny\",\"more\":1}]'",
        "clauses = '[]'",
        "clauses = '[{\"any_of\":[],\"quorum\":1}]'",
        "clauses = '[{\"any_of\":[\"owner\"],\"quorum\":0}]'",
        "clauses = '[{\"any_of\":[\"everyone\"],\"quorum\":1}]'",
        "clauses = '[{\"any_of\":[\"owner\"],\"quorum\":1,\"unless\":\"x\"}]'",
        "clauses = '[{\"any_of\":[\"person:eve\"],\"quorum\":1}]'",
        "requirement_digest = 'x'",
        "exclude_requester = 1",
        "exclude_requester = 2",
        "decide_within_us = -1",
        "retry_of = '0190b6c0-0000-7000-8000-00000000000a'",
        "retry_of = '0190b6c0-0000-7000-8000-00000000000a', retried_outcome = 'succeeded'",
        "omissions = '[{\"pointer\":\"\",\"kind\":\"LOST\",\"count\":1}]'",
        "version = -1",
        "wait_id = '0190b6c0-0000-7000-8000-00000000000a'",
        "wait_id = 'x', ends_by = 9223372036854775807",
        "ends_by = 9223372036854775807",
    ] {
        let folder = Folder::new();
        let store = open(&folder).await;
        let id = approval_id();
        let new =
            NewApproval { id, question: question(), request: None, arguments: sealed_arguments(), limits: NO_LIMITS };
        store.request(new).await.unwrap();
        scribble(&folder, format!("UPDATE approvals SET {broken}")).await;
        let error = store.approval(id).await.unwrap_err();
        let StoreError::Corrupt { table: "approvals", id: named } = error else { panic!("{broken}: {error}") };
        assert_eq!(named, id.to_string(), "{broken}");
    }
}

#[tokio::test]
async fn a_decision_that_does_not_parse_makes_its_approval_corrupt() {
    for values in [
        "'', '[]', 1, 'APPROVE', NULL, 'console', 1",
        "'dana', '[\"\"]', 1, 'APPROVE', NULL, 'console', 1",
        "'dana', 'x', 1, 'APPROVE', NULL, 'console', 1",
        "'dana', '[]', 2, 'APPROVE', NULL, 'console', 1",
        "'dana', '[]', 1, 'PERHAPS', NULL, 'console', 1",
        "'dana', '[]', 1, 'APPROVE', NULL, '', 1",
    ] {
        let folder = Folder::new();
        let store = open(&folder).await;
        let id = approval_id();
        let new =
            NewApproval { id, question: question(), request: None, arguments: sealed_arguments(), limits: NO_LIMITS };
        store.request(new).await.unwrap();
        scribble(&folder, format!("INSERT INTO approval_decisions VALUES ('{id}', 0, {values})")).await;
        let error = store.approval(id).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { table: "approvals", .. }), "{values}: {error}");
    }
}

#[tokio::test]
async fn an_execution_that_fits_no_state_is_corrupt() {
    for broken in [
        "state = 'done'",
        "state = 'succeeded'",
        "state = 'unknown', detail = 'x'",
        "report_time = 1",
        "report_time = 1, reported_by = 'runner'",
        "reported_by = 'runner'",
        "duration_us = 1",
        "state = 'failed', report_time = 1, reported_by = 'runner', duration_us = -1",
        "attempt_id = 'x'",
        "approval_id = 'x'",
        "retry_of = 'x'",
        "caller = ''",
        "version = -1",
    ] {
        let folder = Folder::new();
        let store = open(&folder).await;
        let execution = store.start(start(subject())).await.unwrap().unwrap();
        scribble(&folder, format!("UPDATE executions SET {broken}")).await;
        let error = store.execution(execution.id).await.unwrap_err();
        let StoreError::Corrupt { table: "executions", id } = error else { panic!("{broken}: {error}") };
        assert_eq!(id, execution.id.to_string(), "{broken}");
    }
}

fn opening() -> Opening {
    Opening {
        id: WaitId::new(Uuid::now_v7()),
        caller: id("runner"),
        principal: id("olga"),
        agent: id("assistant"),
        conversation: None,
        objective: subject().objective.unwrap(),
        summary: "until olga has answered".to_owned(),
        expire_after: None,
        replace: false,
    }
}

#[tokio::test]
async fn a_wait_that_fits_no_state_is_corrupt() {
    for broken in [
        "state = 'over'",
        "state = 'resumed'",
        "state = 'resumed', resume_time = 1, resumed_by = 'runner'",
        "state = 'closed'",
        "state = 'closed', close_time = 1, close_kind = 'expired', closed_by = 'runner'",
        "state = 'closed', close_time = 1, close_kind = 'closed'",
        "state = 'closed', close_time = 1, close_kind = 'forgotten', closed_by = 'runner'",
        "state = 'closed', close_time = 1, close_kind = 'replaced', closed_by = 'runner', close_reason = 'x'",
        "resume_time = 1",
        "attempt_id = 'x'",
        "close_reason = 'x'",
        "principal = ''",
        "opened_by = ' x'",
        "objective_revision = -1",
        "version = -1",
    ] {
        let folder = Folder::new();
        let store = open(&folder).await;
        let wait = store.open_wait(opening()).await.unwrap().row.unwrap().record.wait;
        scribble(&folder, format!("UPDATE waits SET {broken}")).await;
        for error in [
            store.wait(wait.id).await.map(drop).unwrap_err(),
            store.close_wait(wait.id, &id("runner"), None).await.map(drop).unwrap_err(),
        ] {
            let StoreError::Corrupt { table: "waits", id: named } = error else { panic!("{broken}: {error}") };
            assert_eq!(named, wait.id.to_string(), "{broken}");
        }
    }
}

#[tokio::test]
async fn a_corrupt_approval_is_never_used() {
    for broken in
        ["requirement_digest = 'x'", "use_by = NULL", "fingerprint = 'x'", "arguments_digest = ''", "state = 'pending'"]
    {
        let folder = Folder::new();
        let fixture = Fixture::new(Arc::new(Folder(folder.0.clone()))).await;
        let approved = fixture.approved(question()).await;
        scribble(&folder, format!("UPDATE approvals SET {broken}")).await;
        let digest = Accepting::Digest(approved.question.requirement.digest());
        let passed = fixture.store.consume(start_of(&approved), digest).await;
        assert!(matches!(passed, Ok(None) | Err(_)), "{broken}: {passed:?}");
    }
}

#[tokio::test]
async fn the_table_itself_refuses_a_row_that_fits_no_state() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let new = NewApproval {
        id: approval_id(),
        question: question(),
        request: None,
        arguments: sealed_arguments(),
        limits: NO_LIMITS,
    };
    store.request(new).await.unwrap();
    store.start(start(subject())).await.unwrap().unwrap();
    store.open_wait(opening()).await.unwrap().row.unwrap();
    let mut connection = open::writer_options(&folder.database()).connect().await.unwrap();
    for broken in [
        "UPDATE approvals SET state = 'approved'",
        "UPDATE approvals SET state = 'consumed', decide_time = 1, use_by = 2, consume_time = 1",
        "UPDATE approvals SET state = 'denied', decide_time = 1, use_by = 2",
        "UPDATE approvals SET state = 'cancelled', close_time = 1",
        "UPDATE approvals SET state = 'revoked', close_time = 1, closed_by = 'x'",
        "UPDATE approvals SET state = 'expired'",
        "UPDATE approvals SET state = 'Pending'",
        "UPDATE approvals SET state_reason = 'x'",
        "UPDATE approvals SET open_until = NULL",
        "UPDATE approvals SET open_until = open_until + 1",
        "UPDATE approvals SET objective_id = NULL",
        "UPDATE approvals SET objective_revision = 9007199254740992",
        "UPDATE approvals SET retry_of = 'x'",
        "UPDATE approvals SET version = 0",
        "UPDATE approvals SET create_time = 'yesterday'",
        "UPDATE approval_audience SET state = 'open'",
        "UPDATE approval_audience SET approval_id = 'x'",
        "UPDATE executions SET state = 'succeeded'",
        "UPDATE executions SET detail = 'x'",
        "UPDATE executions SET state = 'unknown', report_time = 1",
        "UPDATE approvals SET wait_id = 'x'",
        "UPDATE approvals SET ends_by = decide_by",
        "UPDATE approvals SET wait_id = 'x', ends_by = decide_by - 1",
        "UPDATE waits SET state = 'resumed'",
        "UPDATE waits SET state = 'closed', close_time = 1, close_kind = 'closed'",
        "UPDATE waits SET state = 'closed', close_time = 1, close_kind = 'expired', closed_by = 'x'",
        "UPDATE waits SET close_reason = 'x'",
        "UPDATE waits SET objective_revision = -1",
        "UPDATE waits SET version = 0",
        "INSERT INTO waits SELECT 'another', version, state, resume_time, resumed_by, attempt_id, close_time, closed_by,
            close_kind, close_reason, create_time, update_time, expire_time, opened_by, principal, agent, conversation,
            objective_transcript, objective_id, objective_revision, summary FROM waits",
        "UPDATE audit_records SET fingerprint = NULL WHERE kind LIKE 'approval.%'",
        "UPDATE audit_records SET action = 'x' WHERE kind LIKE 'wait.%'",
    ] {
        let error = query(broken).execute(&mut connection).await.unwrap_err();
        assert!(error.as_database_error().is_some(), "{broken}: {error}");
    }
}

#[tokio::test]
async fn a_page_of_executions_looks_at_so_many_and_the_next_goes_on() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let oldest = store.start(start(subject())).await.unwrap().unwrap();
    // Many of one instant, and none of them wanted.
    let mut tool = open::writer_options(&folder.database()).connect().await.unwrap();
    let columns: String = query("SELECT group_concat(name, ',') FROM pragma_table_xinfo('executions')")
        .fetch_one(&mut tool)
        .await
        .unwrap()
        .get(0);
    let copied = columns
        .replace("start_time", "start_time + 1")
        .replace("attempt_id", "printf('01900000-0000-4000-8000-%012x', number)")
        .replace("principal", "'somebody else'");
    let copied = copied.replacen("id,", "printf('01900000-0000-7000-8000-%012x', number),", 1);
    let insert = format!(
        "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 12000) \
         INSERT INTO executions ({columns}) SELECT {copied} FROM executions, numbers"
    );
    query(AssertSqlSafe(insert)).execute(&mut tool).await.unwrap();
    let mut wanted =
        ExecutionQuery { principal: Some(oldest.subject.principal.clone()), limit: 10, ..Default::default() };
    let mut pages = Vec::new();
    loop {
        let page = store.executions(wanted.clone()).await.unwrap().row;
        pages.push(page.executions.len());
        let Some(until) = page.looked_until else {
            assert_eq!(page.executions, [oldest]);
            break;
        };
        wanted.before = Some(until);
    }
    assert_eq!(pages, [0, 0, 1]);
}
