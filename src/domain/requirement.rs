//! Who must confirm. A requirement is clauses of people and numbers; it is met when different people can be assigned to
//! all clauses, each person to one. That is a matching, not a greedy count: with clauses `{owner}` and
//! `{owner, finance}`, the owner and one of finance meet it, in whichever order they came.

use super::hex;
use super::text::Identifier;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// One entry of a clause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Approver {
    /// The approval's principal: `owner`.
    Owner,
    /// A group of the policy: `group:NAME`.
    Group(Identifier),
    /// One person: `person:ID`.
    Person(Identifier),
}

impl Approver {
    /// Reads `owner`, `group:NAME` or `person:ID`; nothing else is an approver.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "owner" {
            return Some(Self::Owner);
        }
        let (kind, name) = text.split_once(':')?;
        let name = Identifier::parse(name).ok()?;
        match kind {
            "group" => Some(Self::Group(name)),
            "person" => Some(Self::Person(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Approver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => formatter.write_str("owner"),
            Self::Group(name) => write!(formatter, "group:{name}"),
            Self::Person(name) => write!(formatter, "person:{name}"),
        }
    }
}

/// Some people and how many different ones of them must approve. Entries are sorted and differ from one another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clause {
    any_of: Vec<Approver>,
    quorum: u32,
}

impl Clause {
    /// The clause of these entries; their order and repetitions do not matter. None without an entry or with a quorum of
    /// zero, which anybody and nobody would meet.
    pub fn new(any_of: impl IntoIterator<Item = Approver>, quorum: u32) -> Option<Self> {
        let any_of: BTreeSet<Approver> = any_of.into_iter().collect();
        (!any_of.is_empty() && quorum > 0).then(|| Self { any_of: any_of.into_iter().collect(), quorum })
    }

    /// The clause that one's own consent is enough for.
    pub fn owner() -> Self {
        Self { any_of: vec![Approver::Owner], quorum: 1 }
    }

    /// Its entries, sorted.
    pub fn any_of(&self) -> &[Approver] {
        &self.any_of
    }

    /// How many different people.
    pub fn quorum(&self) -> u32 {
        self.quorum
    }

    fn counts(&self, person: &Standing<'_>) -> bool {
        self.any_of.iter().any(|entry| match entry {
            Approver::Owner => person.as_owner,
            Approver::Group(name) => person.groups.iter().any(|group| group == name),
            Approver::Person(id) => id == person.person,
        })
    }
}

/// A person as a requirement sees one: who, in which groups at that time, and whether it is the owner.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// Who.
    pub person: &'a Identifier,
    /// Every group of the policy that the person is (or, for a recorded decision, was) in.
    pub groups: &'a [Identifier],
    /// Whether the person is the approval's principal.
    pub as_owner: bool,
}

/// Who must confirm, and how long there is to do it and to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    clauses: Vec<Clause>,
    exclude_requester: bool,
    decide_within: Duration,
    use_within: Duration,
}

impl Requirement {
    /// The requirement of these clauses: those with equal entries merge, the larger quorum winning. None without a clause.
    pub fn new(
        clauses: impl IntoIterator<Item = Clause>,
        exclude_requester: bool,
        decide_within: Duration,
        use_within: Duration,
    ) -> Option<Self> {
        let mut merged: BTreeMap<Vec<Approver>, u32> = BTreeMap::new();
        for clause in clauses {
            let quorum = merged.entry(clause.any_of).or_insert(0);
            *quorum = clause.quorum.max(*quorum);
        }
        let clauses: Vec<Clause> = merged.into_iter().map(|(any_of, quorum)| Clause { any_of, quorum }).collect();
        (!clauses.is_empty()).then_some(Self { clauses, exclude_requester, decide_within, use_within })
    }

    /// Every clause, sorted; never empty.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// Whether the principal on whose behalf it is asked may not decide.
    pub fn exclude_requester(&self) -> bool {
        self.exclude_requester
    }

    /// How long people have to decide.
    pub fn decide_within(&self) -> Duration {
        self.decide_within
    }

    /// How long the agent then has to use it.
    pub fn use_within(&self) -> Duration {
        self.use_within
    }

    /// The same with people having no longer than `longest` to decide.
    #[must_use]
    pub fn deciding_within(self, longest: Duration) -> Self {
        Self { decide_within: self.decide_within.min(longest), ..self }
    }

    /// Whether this person's approval counts for any clause.
    pub fn may_decide(&self, person: &Standing<'_>) -> bool {
        !self.bars(person) && self.clauses.iter().any(|clause| clause.counts(person))
    }

    /// Whether these people, all of whom approve, can be assigned to all clauses, each to one. The same person given twice
    /// counts once.
    pub fn met_by<'a>(&self, people: impl IntoIterator<Item = Standing<'a>>) -> bool {
        let mut seen = BTreeSet::new();
        let people: Vec<Standing<'a>> =
            people.into_iter().filter(|person| !self.bars(person) && seen.insert(person.person)).collect();
        let slots: Vec<&Clause> =
            self.clauses.iter().flat_map(|clause| std::iter::repeat_n(clause, clause.quorum as usize)).collect();
        if people.len() < slots.len() {
            return false;
        }
        let mut holder: Vec<Option<usize>> = vec![None; people.len()];
        (0..slots.len()).all(|slot| {
            let mut tried = vec![false; people.len()];
            assign(slot, &slots, &people, &mut holder, &mut tried)
        })
    }

    /// SHA-256 over clauses, quorums and exclusion in one fixed form: equal for requirements that the same decisions meet.
    /// Times and rule names are no part of it.
    pub fn digest(&self) -> RequirementDigest {
        let mut hash = Sha256::new();
        hash.update(b"countersign.requirement/v1\n");
        hash.update([u8::from(self.exclude_requester)]);
        for clause in &self.clauses {
            hash.update(clause.quorum.to_be_bytes());
            hash.update((clause.any_of.len() as u64).to_be_bytes());
            for entry in &clause.any_of {
                let text = entry.to_string();
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text.as_bytes());
            }
        }
        RequirementDigest(hash.finalize().into())
    }

    fn bars(&self, person: &Standing<'_>) -> bool {
        self.exclude_requester && person.as_owner
    }
}

/// Finds a person for `slot`, moving people between slots where that frees one (an augmenting path). The recursion is as
/// deep as there are slots, which `limits` bounds.
fn assign(
    slot: usize,
    slots: &[&Clause],
    people: &[Standing<'_>],
    holder: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    let Some(clause) = slots.get(slot) else { return false };
    for (index, person) in people.iter().enumerate() {
        let Some(seen) = tried.get_mut(index) else { continue };
        if *seen || !clause.counts(person) {
            continue;
        }
        *seen = true;
        let held = holder.get(index).copied().flatten();
        if held.is_none_or(|other| assign(other, slots, people, holder, tried)) {
            if let Some(place) = holder.get_mut(index) {
                *place = Some(slot);
            }
            return true;
        }
    }
    false
}

/// What two requirements that the same decisions meet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequirementDigest([u8; 32]);

impl fmt::Display for RequirementDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(formatter, &self.0)
    }
}

/// The policy's groups: who is in which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    members: BTreeMap<Identifier, BTreeSet<Identifier>>,
    /// Those that have any number of members beside the listed ones, by the word of whoever vouches for a person.
    external: BTreeSet<Identifier>,
}

impl Groups {
    /// The groups of these names and members.
    pub fn new(groups: BTreeMap<Identifier, BTreeSet<Identifier>>) -> Self {
        Self { members: groups, external: BTreeSet::new() }
    }

    /// The same, these of them with members beside the listed ones.
    #[must_use]
    pub fn external(self, external: BTreeSet<Identifier>) -> Self {
        Self { external, ..self }
    }

    /// Whether there is a group of that name.
    pub fn contains(&self, name: &Identifier) -> bool {
        self.members.contains_key(name)
    }

    /// Whether a group has members beside the listed ones.
    pub fn is_external(&self, name: &Identifier) -> bool {
        self.external.contains(name)
    }

    /// Whether a clause names a group that has members beside the listed ones: enough people could always meet it.
    pub fn is_open(&self, clause: &Clause) -> bool {
        clause.any_of.iter().any(|entry| match entry {
            Approver::Group(name) => self.is_external(name),
            Approver::Owner | Approver::Person(_) => false,
        })
    }

    /// Every group that this person is in, sorted, where somebody vouches for these: of those, the external ones count.
    pub fn of_vouched(&self, person: &Identifier, vouched: &[Identifier]) -> Vec<Identifier> {
        let mut groups = self.of(person);
        if !vouched.is_empty() {
            groups.extend(vouched.iter().filter(|group| self.is_external(group)).cloned());
            groups.sort();
            groups.dedup();
        }
        groups
    }

    /// Every group that this person is in, sorted.
    pub fn of(&self, person: &Identifier) -> Vec<Identifier> {
        self.members.iter().filter(|(_, members)| members.contains(person)).map(|(name, _)| name.clone()).collect()
    }

    /// Every group with its members, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&Identifier, &BTreeSet<Identifier>)> {
        self.members.iter()
    }

    /// Whether `requirement` could be met at all, if `owner` is the approval's principal and everyone concerned approved.
    pub fn could_meet(&self, requirement: &Requirement, owner: &Identifier) -> bool {
        // An external group may have as many others as are wanted, so its clauses take nobody from the rest.
        let bounded = requirement.clauses.iter().filter(|clause| !self.is_open(clause)).cloned();
        let times = (requirement.decide_within, requirement.use_within);
        let Some(requirement) = Requirement::new(bounded, requirement.exclude_requester, times.0, times.1) else {
            return true;
        };
        let mut people: BTreeSet<&Identifier> = BTreeSet::new();
        for entry in requirement.clauses.iter().flat_map(|clause| &clause.any_of) {
            match entry {
                Approver::Owner => {
                    people.insert(owner);
                }
                Approver::Group(name) => people.extend(self.members.get(name).into_iter().flatten()),
                Approver::Person(id) => {
                    people.insert(id);
                }
            }
        }
        let groups: Vec<Vec<Identifier>> = people.iter().map(|person| self.of(person)).collect();
        requirement.met_by(people.iter().zip(&groups).map(|(person, groups)| Standing {
            person,
            groups,
            as_owner: *person == owner,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::testing::moved;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requirements_have_one_digest_where_they_ask_the_same_and_nowhere_else(
            (one, other) in moved(4),
            (quorum, quorum_too) in (1..3_u32, 1..3_u32),
            (split, split_too) in (0..5_usize, 0..5_usize),
            (excludes, excludes_too) in any::<(bool, bool)>(),
        ) {
            let of = |fields: &[String], quorum, split: usize, excludes| {
                let entry = |(place, text): (usize, &String)| {
                    let kind = if place % 2 == 0 { "group" } else { "person" };
                    Approver::parse(&format!("{kind}:{text}"))
                };
                let entries: Vec<Approver> = fields.iter().enumerate().filter_map(entry).collect();
                let (first, rest) = entries.split_at(split.min(entries.len()));
                let clauses = [first, rest].map(|entries| Clause::new(entries.iter().cloned(), quorum));
                Requirement::new(clauses.into_iter().flatten(), excludes, Duration::from_secs(60), Duration::from_secs(60))
            };
            let made = of(&one, quorum, split, excludes).zip(of(&other, quorum_too, split_too, excludes_too));
            prop_assume!(made.is_some());
            let Some((a, b)) = made else { return Ok(()) };
            let same = a.clauses() == b.clauses() && a.exclude_requester() == b.exclude_requester();
            prop_assert_eq!(a.digest() == b.digest(), same);
        }
    }

    fn id(text: &str) -> Identifier {
        Identifier::parse(text).unwrap()
    }

    fn clause(entries: &[&str], quorum: u32) -> Clause {
        Clause::new(entries.iter().map(|entry| Approver::parse(entry).unwrap()), quorum).unwrap()
    }

    fn requirement(clauses: Vec<Clause>, exclude_requester: bool) -> Requirement {
        Requirement::new(clauses, exclude_requester, Duration::from_secs(60), Duration::from_secs(60)).unwrap()
    }

    fn groups() -> Groups {
        let group = |members: &[&str]| members.iter().map(|member| id(member)).collect();
        Groups::new(BTreeMap::from([
            (id("finance"), group(&["dana", "eve"])),
            (id("security"), group(&["sam", "dana"])),
        ]))
    }

    fn met(requirement: &Requirement, owner: &str, people: &[&str]) -> bool {
        let people: Vec<(Identifier, Vec<Identifier>)> =
            people.iter().map(|person| (id(person), groups().of(&id(person)))).collect();
        requirement.met_by(people.iter().map(|(person, groups)| Standing {
            person,
            groups,
            as_owner: person.as_str() == owner,
        }))
    }

    #[test]
    fn people_are_matched_to_clauses_not_counted_greedily() {
        let both =
            requirement(vec![clause(&["group:finance"], 1), clause(&["group:finance", "group:security"], 1)], false);
        assert!(!met(&both, "owner", &["dana"]), "one person fills one clause");
        assert!(met(&both, "owner", &["dana", "eve"]));
        assert!(met(&both, "owner", &["dana", "sam"]), "dana must be moved to the clause that only she can fill");
        assert!(!met(&both, "owner", &["sam"]));
        let three = requirement(
            vec![clause(&["group:finance"], 2), clause(&["group:security", "owner"], 1), clause(&["person:kim"], 1)],
            false,
        );
        assert!(met(&three, "olga", &["kim", "sam", "eve", "dana"]));
        assert!(met(&three, "olga", &["olga", "dana", "kim", "eve"]));
        assert!(!met(&three, "olga", &["dana", "eve", "kim"]), "dana cannot stand for two clauses");
    }

    #[test]
    fn the_matching_agrees_with_trying_every_assignment() {
        let names = ["olga", "dana", "eve", "sam", "kim"];
        let pool = [
            clause(&["owner"], 1),
            clause(&["group:finance"], 1),
            clause(&["group:finance"], 2),
            clause(&["group:security", "person:kim"], 1),
            clause(&["group:security", "owner"], 2),
        ];
        for mask in 1_u32..32 {
            for excluded in [false, true] {
                let chosen: Vec<Clause> = pool
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| mask & (1 << index) != 0)
                    .map(|(_, c)| c.clone())
                    .collect();
                let requirement = requirement(chosen, excluded);
                for people in 0_u32..32 {
                    let people: Vec<&str> =
                        names.iter().enumerate().filter(|(i, _)| people & (1 << i) != 0).map(|(_, n)| *n).collect();
                    assert_eq!(
                        met(&requirement, "olga", &people),
                        by_trial(&requirement, &people),
                        "{requirement:?} with {people:?}"
                    );
                }
            }
        }
    }

    fn by_trial(requirement: &Requirement, people: &[&str]) -> bool {
        fn fill(slots: &[&Clause], people: &[&str]) -> bool {
            let Some((first, rest)) = slots.split_first() else { return true };
            people.iter().enumerate().any(|(index, person)| {
                let groups = groups().of(&id(person));
                let standing = Standing { person: &id(person), groups: &groups, as_owner: *person == "olga" };
                let mut others = people.to_vec();
                others.remove(index);
                first.counts(&standing) && fill(rest, &others)
            })
        }
        let slots: Vec<&Clause> =
            requirement.clauses.iter().flat_map(|c| std::iter::repeat_n(c, c.quorum as usize)).collect();
        let allowed: Vec<&str> =
            people.iter().copied().filter(|p| !(requirement.exclude_requester && *p == "olga")).collect();
        fill(&slots, &allowed)
    }

    #[test]
    fn one_person_given_twice_counts_once() {
        let two = requirement(vec![clause(&["group:finance"], 2)], false);
        assert!(!met(&two, "olga", &["dana", "dana"]));
    }

    #[test]
    fn an_excluded_requester_neither_decides_nor_counts() {
        let own = requirement(vec![clause(&["owner", "person:kim"], 1)], true);
        assert!(!met(&own, "olga", &["olga"]));
        assert!(met(&own, "olga", &["kim"]));
        let olga = id("olga");
        assert!(!own.may_decide(&Standing { person: &olga, groups: &[], as_owner: true }));
        assert!(groups().could_meet(&own, &olga));
        assert!(!groups().could_meet(&own, &id("kim")), "kim is the requester and the only other entry");
    }

    #[test]
    fn an_empty_clause_or_a_quorum_of_zero_is_no_clause() {
        assert!(Clause::new([], 1).is_none());
        assert!(Clause::new([Approver::Owner], 0).is_none());
        assert!(Requirement::new([], false, Duration::ZERO, Duration::ZERO).is_none());
    }

    #[test]
    fn equal_clauses_merge_and_the_larger_quorum_wins() {
        let merged = requirement(
            vec![clause(&["group:finance", "owner"], 1), clause(&["owner", "group:finance", "owner"], 2)],
            false,
        );
        assert_eq!(merged.clauses(), [clause(&["owner", "group:finance"], 2)]);
    }

    #[test]
    fn the_digest_covers_clauses_quorums_and_exclusion_and_no_times() {
        let base = requirement(vec![clause(&["owner"], 1), clause(&["group:finance"], 1)], false);
        let reordered = requirement(vec![clause(&["group:finance"], 1), clause(&["owner"], 1)], false);
        assert_eq!(base.digest(), reordered.digest());
        let longer = Requirement { decide_within: Duration::from_secs(1), ..base.clone() };
        assert_eq!(base.digest(), longer.digest());
        for other in [
            requirement(vec![clause(&["owner"], 1), clause(&["group:finance"], 2)], false),
            requirement(vec![clause(&["owner"], 1), clause(&["group:finance"], 1)], true),
            requirement(vec![clause(&["owner", "group:finance"], 1)], false),
            requirement(vec![clause(&["owner"], 1), clause(&["person:finance"], 1)], false),
        ] {
            assert_ne!(base.digest(), other.digest(), "{other:?}");
        }
    }

    #[test]
    fn characters_moved_across_the_border_of_two_entries_make_another_digest() {
        for delimiter in ["", ":", ",", "group:", "person:", "owner", "\\", "|"] {
            let named = |one: String, other: String| {
                let entries = [one, other].map(|name| Approver::Group(id(&name)));
                requirement(vec![Clause::new(entries, 1).unwrap()], false).digest()
            };
            let here = named(format!("a{delimiter}b"), "c".to_owned());
            let there = named("a".to_owned(), format!("b{delimiter}c"));
            assert_ne!(here, there, "{delimiter:?}");
        }
        let together = requirement(vec![clause(&["group:a", "group:b"], 1)], false);
        let apart = requirement(vec![clause(&["group:a"], 1), clause(&["group:b"], 1)], false);
        let joined = requirement(vec![clause(&["group:a,group:b"], 1)], false);
        assert_ne!(together.digest(), apart.digest());
        assert_ne!(together.digest(), joined.digest());
    }

    #[test]
    fn only_the_three_forms_are_approvers() {
        for text in ["", "Owner", "owner ", "group:", "group: finance", "people:dana", "dana", "person:\u{202e}x"] {
            assert!(Approver::parse(text).is_none(), "{text:?}");
        }
    }
}
