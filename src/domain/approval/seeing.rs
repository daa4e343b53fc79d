//! Who may see an approval, and who all of its arguments.

use super::{Approval, Person};
use crate::domain::requirement::{Approver, Standing};

impl Approval {
    /// Whether this person may see it: its principal, those who may decide, and those who did.
    pub fn is_visible_to(&self, person: &Person) -> bool {
        self.is_owner(person)
            || self.decisions.iter().any(|decision| decision.person == person.id)
            || self.question.requirement.clauses().iter().flat_map(|clause| clause.any_of()).any(|entry| match entry {
                Approver::Owner => false,
                Approver::Group(name) => person.groups.contains(name),
                Approver::Person(id) => *id == person.id,
            })
    }

    /// Whether this person may read all of the arguments: its principal, those who may decide by the stored requirement,
    /// and those who did.
    pub fn may_read_arguments(&self, person: &Person) -> bool {
        let as_owner = self.is_owner(person);
        let standing = Standing { person: &person.id, groups: &person.groups, as_owner };
        as_owner
            || self.question.requirement.may_decide(&standing)
            || self.decisions.iter().any(|decision| decision.person == person.id)
    }
}
