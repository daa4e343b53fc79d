//! A token opens the door of its own role.

use crate::auth::token::TokenHash;
use crate::auth::*;
use crate::clock::ManualClock;
use crate::domain::pattern::Pattern;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use std::sync::Arc;

fn callers() -> Callers {
    let caller = |name: &str, powers| Caller { name: Identifier::parse(name).unwrap(), powers };
    Callers::new(vec![
        (TokenHash::of(b"agent-token"), caller("runtime", Powers::Agent(Arc::default()))),
        (TokenHash::of(b"dana-token"), caller("dana-cli", Powers::Person(Identifier::parse("dana").unwrap()))),
        (TokenHash::of(b"chat-token"), caller("chat", Powers::Asserts(vec![Pattern::new("*")]))),
        (TokenHash::of(b"operator-token"), caller("ops", Powers::Operator)),
    ])
}

fn name(header: &str, role: Role) -> Result<String, AuthError> {
    named(Authorization::One(header.as_bytes()), role)
}

fn named(authorization: Authorization<'_>, role: Role) -> Result<String, AuthError> {
    let shared = SharedCallers::new(callers(), Arc::new(ManualClock::at(Timestamp::from_micros(0))));
    shared
        .authenticate(Presented { authorization, peer: None }, role)
        .map(|credential| credential.caller().name.to_string())
}

#[test]
fn a_token_opens_the_door_of_its_own_role_alone() {
    let tokens = [
        ("agent-token", "runtime", Role::Agent),
        ("dana-token", "dana-cli", Role::Approver),
        ("chat-token", "chat", Role::Approver),
        ("operator-token", "ops", Role::Operator),
    ];
    for (token, caller, has) in tokens {
        for needs in [Role::Agent, Role::Approver, Role::Operator] {
            let got = name(&format!("Bearer {token}"), needs);
            if has == needs {
                assert_eq!(got, Ok(caller.to_owned()));
            } else {
                assert_eq!(got, Err(AuthError::WrongRole { has, needs }));
            }
        }
    }
}

#[test]
fn what_is_not_exactly_a_known_token_is_nobody() {
    for header in ["Bearer agent-toke", "Bearer agent-tokenx", "Bearer AGENT-TOKEN", "bearer x"] {
        assert_eq!(name(header, Role::Agent), Err(AuthError::Invalid), "{header:?}");
    }
    for header in ["", "Bearer", "Bearer ", "Basic agent-token", "agent-token", "Bearer  agent-token", "Bearer a b"] {
        assert_eq!(name(header, Role::Agent), Err(AuthError::Missing), "{header:?}");
    }
    for header in [Authorization::None, Authorization::Several] {
        assert_eq!(named(header, Role::Agent), Err(AuthError::Missing), "{header:?}");
    }
}

#[test]
fn bounds_that_are_omitted_allow_nobody() {
    let dana = Identifier::parse("dana").unwrap();
    let assistant = Identifier::parse("assistant").unwrap();
    let bounds = |agents: &[&str], principals: &[&str]| AgentBounds {
        agents: agents.iter().map(|text| Pattern::new(text)).collect(),
        principals: principals.iter().map(|text| Pattern::new(text)).collect(),
    };
    assert!(!bounds(&[], &[]).allow(&dana, &assistant));
    assert!(!bounds(&["*"], &[]).allow(&dana, &assistant));
    assert!(!bounds(&[], &["*"]).allow(&dana, &assistant));
    assert!(bounds(&["assist*"], &["dana"]).allow(&dana, &assistant));
    assert!(!bounds(&["dana"], &["assistant"]).allow(&dana, &assistant), "the fields are not to be exchanged");
}
