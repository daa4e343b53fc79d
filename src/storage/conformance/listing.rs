//! Which approvals a person sees.

use super::*;
use crate::domain::approval::StateName;
use crate::domain::requirement::{Approver, Clause, Requirement};
use crate::storage::{ApprovalQuery, Sweep};

const GROUPS: [&str; 3] = ["finance", "security", "night shift"];
const PEOPLE: [&str; 5] = ["olga", "dana", "eve", "sam", "finance"];

fn everything(name: &str) -> ApprovalQuery {
    let person = person(name);
    ApprovalQuery { person: person.id, groups: person.groups, states: Vec::new(), before: None, limit: 10_000 }
}

async fn list(fixture: &Fixture, query: &ApprovalQuery) -> Vec<Approval> {
    fixture.store.approvals(query.clone()).await.unwrap().row
}

pub(in super::super) async fn a_person_sees_what_the_domain_says(fixture: Fixture) {
    let seed = 11;
    let mut random = Random::seeded(seed);
    let mut made = Vec::new();
    for call in 0..150 {
        made.push(some_approval(&fixture, &mut random, call).await);
        if random.one_in(3) {
            fixture.clock.advance(Duration::from_secs(u64::try_from(random.below(90)).unwrap()));
        }
    }
    let mut all = Vec::new();
    for approval in made {
        all.push(fixture.approval(approval).await);
    }
    all.sort_by_key(|approval| std::cmp::Reverse((approval.create_time, approval.id)));
    for case in 0..400 {
        let mut query = everything(random.pick::<&str>(&PEOPLE));
        query.groups = GROUPS.iter().filter(|_| random.one_in(2)).map(|group| id(group)).collect();
        if random.one_in(4) {
            query.groups.extend(query.groups.clone());
        }
        query.states = StateName::ALL.into_iter().filter(|_| random.one_in(3)).collect();
        query.limit = u32::try_from(random.below(40)).unwrap();
        query.before = random.one_in(2).then(|| random.pick(&all)).map(|last| (last.create_time, last.id));
        let now = fixture.now();
        let seer = crate::domain::approval::Person {
            id: query.person.clone(),
            groups: query.groups.clone(),
            vouched: [].into(),
            caller: id("console"),
        };
        let want: Vec<&Approval> = all
            .iter()
            .filter(|approval| approval.is_visible_to(&seer))
            .filter(|approval| query.states.is_empty() || query.states.contains(&approval.state_at(now)))
            .filter(|approval| query.before.is_none_or(|before| (approval.create_time, approval.id) < before))
            .take(usize::try_from(query.limit).unwrap())
            .collect();
        let got = fixture.store.approvals(query.clone()).await.unwrap();
        assert_eq!(got.now, now);
        assert_eq!(got.row.iter().collect::<Vec<_>>(), want, "seed {seed}, case {case}: {query:?}");
        if random.one_in(20) {
            fixture.clock.advance(Duration::from_secs(20));
        }
    }
}

pub(in super::super) async fn a_list_by_state_is_whole_however_much_is_overdue(fixture: Fixture) {
    let fixture = Arc::new(fixture);
    // More than is sorted, of each: newer ones that are soon overdue, between older ones that are not.
    let (soon, late) = (Duration::from_secs(60), Duration::from_secs(6_000));
    for part in 0..44 {
        let asking: Vec<_> = (0..50)
            .map(|call| {
                let fixture = Arc::clone(&fixture);
                let mut question = question_about(&format!("{part} {call}"));
                let within = if part % 2 == 0 { soon } else { late };
                question.requirement = question.requirement.deciding_within(within);
                tokio::spawn(async move { fixture.ask(question).await.id })
            })
            .collect();
        for asking in asking {
            asking.await.unwrap();
        }
        fixture.clock.advance(TICK);
    }
    let mut expired = 0;
    for (overdue, swept) in [(0, 0), (1_100, 0), (1_100, 300), (1_100, 1_100)] {
        if overdue > 0 && swept == 0 {
            fixture.clock.advance(soon);
        }
        let left = swept - expired;
        expired += fixture.store.sweep(Sweep::ExpireApprovals, left).await.unwrap().rows;
        assert_eq!(expired, swept);
        for (state, wanted) in [(StateName::Pending, 2_200 - overdue), (StateName::Expired, overdue)] {
            let mut query = ApprovalQuery { states: vec![state], limit: 97, ..everything("olga") };
            let mut seen = Vec::new();
            loop {
                let page = list(&fixture, &query).await;
                let Some(last) = page.last() else { break };
                query.before = Some((last.create_time, last.id));
                seen.extend(page.iter().map(|approval| (approval.create_time, approval.id)));
                assert!(page.into_iter().all(|approval| approval.state_at(fixture.now()) == state));
            }
            assert!(seen.is_sorted_by(|newer, older| newer > older), "{state}: {overdue} overdue, {swept} swept");
            assert_eq!(seen.len(), wanted, "{state}: {overdue} overdue, {swept} swept");
        }
    }
}

/// An approval of some requirement in some state.
async fn some_approval(fixture: &Fixture, random: &mut Random, call: usize) -> ApprovalId {
    let mut question = question_about(&call.to_string());
    question.subject.principal = id(random.pick::<&str>(&PEOPLE));
    let mut entries: Vec<Approver> = Vec::new();
    for _ in 0..=random.below(3) {
        entries.push(match random.below(3) {
            0 => Approver::Owner,
            1 => Approver::Group(id(random.pick::<&str>(&GROUPS))),
            _ => Approver::Person(id(random.pick::<&str>(&PEOPLE))),
        });
    }
    let clauses = entries.into_iter().map(|entry| Clause::new([entry], 1).unwrap());
    let exclude = random.one_in(4);
    question.requirement = Requirement::new(clauses, exclude, DECIDE_WITHIN, USE_WITHIN).unwrap();
    let mut approval = fixture.ask(question).await;
    for _ in 0..random.below(4) {
        let answer = Answer {
            verdict: if random.one_in(4) { Verdict::Deny } else { Verdict::Approve },
            reason: None,
            shown_fingerprint: None,
        };
        let name = *random.pick(&PEOPLE);
        let groups: Vec<&str> = GROUPS.into_iter().filter(|_| random.one_in(2)).collect();
        let person = person(&format!("{name}:{}", groups.join(",")));
        if let Ok(commanded @ Commanded::Changed(_)) = approval.decide(&person, &answer, fixture.now()) {
            approval = fixture.save(commanded, approval.version).await;
        }
    }
    match random.below(5) {
        0 => {
            if let Ok(commanded @ Commanded::Changed(_)) = approval.cancel(&id("runner"), None, fixture.now()) {
                fixture.save(commanded, approval.version).await;
            }
        }
        1 => {
            fixture.consume(start_of(&approval)).await;
        }
        2 => {
            let principal = person(approval.question.subject.principal.as_str());
            if let Ok(commanded @ Commanded::Changed(_)) = approval.revoke(&principal, None, fixture.now()) {
                fixture.save(commanded, approval.version).await;
            }
        }
        _ => {}
    }
    approval.id
}

pub(in super::super) async fn an_overdue_approval_is_listed_as_expired(fixture: Fixture) {
    let pending = fixture.ask(question_about("pending")).await;
    let approved = fixture.approved(question_about("approved")).await;
    let listed = |states: &[StateName]| {
        let query = ApprovalQuery { states: states.to_vec(), ..everything("olga") };
        let store = Arc::clone(&fixture.store);
        async move {
            let rows = store.approvals(query).await.unwrap().row;
            rows.into_iter().map(|approval| approval.id).collect::<Vec<_>>()
        }
    };
    let use_by = approved.state.confirmed().unwrap().use_by;
    fixture.advance_to(use_by.minus(TICK));
    assert_eq!(listed(&[StateName::Approved]).await, [approved.id]);
    assert!(listed(&[StateName::Expired]).await.is_empty());
    for instant in [use_by, use_by.plus(TICK)] {
        fixture.advance_to(instant);
        assert!(listed(&[StateName::Approved]).await.is_empty());
        assert_eq!(listed(&[StateName::Expired]).await, [approved.id]);
        assert_eq!(listed(&[StateName::Pending]).await, [pending.id]);
    }
    fixture.advance_to(pending.decide_by.minus(TICK));
    assert_eq!(listed(&[StateName::Pending]).await, [pending.id]);
    fixture.clock.advance(TICK);
    assert!(listed(&[StateName::Pending]).await.is_empty());
    assert_eq!(listed(&[StateName::Expired]).await, [approved.id, pending.id]);
    assert_eq!(listed(&[StateName::Expired, StateName::Pending]).await, [approved.id, pending.id]);
    assert_eq!(listed(&[]).await, [approved.id, pending.id]);
    let change = pending.expired(fixture.now()).unwrap();
    fixture.save_change(change, pending.version).await;
    assert_eq!(listed(&[StateName::Expired]).await, [approved.id, pending.id], "written down or not");
}

pub(in super::super) async fn pages_are_whole_in_order_and_unmoved_by_new_approvals(fixture: Fixture) {
    let mut ids = Vec::new();
    for call in 0..45 {
        // Several of one instant: the id then decides.
        if call % 4 == 0 {
            fixture.clock.advance(TICK);
        }
        let mut question = question_about(&call.to_string());
        question.requirement = requirement(&[&["group:finance", "owner"]]);
        ids.push(fixture.ask(question).await.id);
    }
    let (mut seen, mut before) = (Vec::new(), None);
    for page in 0..20 {
        let query = ApprovalQuery { before, limit: 7, ..everything("olga:finance") };
        let rows = list(&fixture, &query).await;
        let Some(last) = rows.last() else { break };
        before = Some((last.create_time, last.id));
        seen.extend(rows.iter().map(|approval| approval.id));
        // Newer ones, of the very instant of the page too, do not move it.
        fixture.ask(question_about(&format!("newer {page}"))).await;
        fixture.clock.advance(TICK);
        fixture.ask(question_about(&format!("newest {page}"))).await;
    }
    ids.reverse();
    assert_eq!(seen, ids);
}

pub(in super::super) async fn who_decided_through_a_group_sees_it_after_leaving(fixture: Fixture) {
    let mut question = question();
    question.requirement = requirement(&[&["group:finance"], &["person:kim"]]);
    let asked = fixture.ask(question).await;
    let decided = fixture.decide(&asked, "dana:finance", Verdict::Approve).await;
    let want = vec![decided];
    for seer in ["dana", "eve:finance", "kim", "olga"] {
        assert_eq!(list(&fixture, &everything(seer)).await, want, "{seer}");
    }
    assert!(list(&fixture, &everything("eve")).await.is_empty());
    assert!(list(&fixture, &everything("finance")).await.is_empty(), "a person is not the group of that name");
    assert!(list(&fixture, &everything("eve:kim,olga")).await.is_empty(), "a group is not the person of that name");
}

pub(in super::super) async fn a_name_is_compared_by_its_bytes(fixture: Fixture) {
    let mut question = question();
    question.subject.principal = id("Zoë");
    fixture.ask(question).await;
    for other in ["zoë", "ZOË", "Zoe\u{308}", "Zoe", "Zo%", "Zo_", "Zoë2"] {
        assert!(list(&fixture, &everything(other)).await.is_empty(), "{other}");
    }
    assert_eq!(list(&fixture, &everything("Zoë")).await.len(), 1);
}
