//! What is known at load of the values that an expression will have.

use cel::common::ast::operators as names;

use super::functions::Kind;

/// What is known at load of a node's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// Only the request will tell.
    Any,
    /// Anything but a list.
    Of(Kind),
    List(Box<Type>),
}

impl Type {
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Any => None,
            Self::Of(kind) => Some(*kind),
            Self::List(_) => Some(Kind::List),
        }
    }

    pub fn of_kind(kind: Kind) -> Self {
        if kind == Kind::List { Self::List(Box::new(Self::Any)) } else { Self::Of(kind) }
    }

    /// What is known of a value that is of either type.
    pub fn or(self, other: &Self) -> Self {
        if self == *other { self } else { Self::Any }
    }

    /// Whether it may turn out to be one of these.
    pub fn may_be(&self, kinds: &[Kind]) -> bool {
        self.kind().is_none_or(|kind| kinds.contains(&kind))
    }
}

/// The type of an operator's result; absent where it is not defined for these.
pub(super) fn result_of(name: &str, left: &Type, right: &Type) -> Option<Type> {
    use Kind::{Bool, Double, Duration, Int, List, Map, String, Timestamp};
    let both = |kinds: &[Kind]| left.may_be(kinds) && right.may_be(kinds);
    let same = match (left.kind(), right.kind()) {
        (Some(left), Some(right)) => left == right,
        _ => true,
    };
    let numbers = both(&[Int, Double]);
    match name {
        names::LOGICAL_OR | names::LOGICAL_AND => both(&[Bool]).then_some(Type::Of(Bool)),
        names::EQUALS | names::NOT_EQUALS => (same || numbers).then_some(Type::Of(Bool)),
        names::LESS | names::LESS_EQUALS | names::GREATER | names::GREATER_EQUALS => {
            let ordered = both(&[Bool, Int, Double, String, Timestamp, Duration]);
            (ordered && (same || numbers)).then_some(Type::Of(Bool))
        }
        names::IN => {
            let in_map = right.may_be(&[Map]) && left.may_be(&[String]);
            let in_list = match right {
                Type::List(element) => result_of(names::EQUALS, left, element).is_some(),
                Type::Any => true,
                Type::Of(_) => false,
            };
            (in_map || in_list).then_some(Type::Of(Bool))
        }
        names::INDEX => match (left, right) {
            (Type::List(element), index) if index.may_be(&[Int]) => Some((**element).clone()),
            (Type::Any, index) => index.may_be(&[Int, String]).then_some(Type::Any),
            (map, index) => (map.may_be(&[Map]) && index.may_be(&[String])).then_some(Type::Any),
        },
        names::ADD => match (left, right) {
            (Type::List(left), Type::List(right)) => Some(Type::List(Box::new((**left).clone().or(right)))),
            (Type::Of(Timestamp), Type::Of(Duration)) | (Type::Of(Duration), Type::Of(Timestamp)) => {
                Some(Type::Of(Timestamp))
            }
            (Type::Any, other) | (other, Type::Any) => {
                other.may_be(&[Int, Double, String, List, Timestamp, Duration]).then_some(Type::Any)
            }
            _ => (same && both(&[Int, Double, String, Duration])).then(|| left.clone()),
        },
        names::SUBSTRACT => match (left, right) {
            (Type::Of(Timestamp), Type::Of(Timestamp)) => Some(Type::Of(Duration)),
            (Type::Of(Timestamp), Type::Of(Duration)) => Some(Type::Of(Timestamp)),
            (Type::Any, other) | (other, Type::Any) => {
                other.may_be(&[Int, Double, Timestamp, Duration]).then_some(Type::Any)
            }
            _ => (same && both(&[Int, Double, Duration])).then(|| left.clone()),
        },
        names::MULTIPLY | names::DIVIDE => {
            (same && numbers).then(|| if left.kind().is_some() { left.clone() } else { right.clone() })
        }
        names::MODULO => both(&[Int]).then_some(Type::Of(Int)),
        _ => None,
    }
}

/// A binary operator's name is what stands between its two places; names of functions never hold an underscore there.
pub(super) fn is_operator(name: &str) -> bool {
    (name.starts_with('_') && name.ends_with(['_', ']'])) || name == names::IN
}

/// An operator as it is written.
pub(super) fn symbol(name: &str) -> &str {
    match name {
        names::IN => "in",
        names::INDEX => "[]",
        name => name.trim_matches('_'),
    }
}
