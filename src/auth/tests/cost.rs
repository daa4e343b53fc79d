//! What it costs.

use super::connections::certificate;
use super::*;

/// What it costs to find out who calls. Run with `--ignored --nocapture`, in a build that optimises.
#[test]
#[ignore = "measures"]
fn what_it_costs_to_find_out_who_calls() {
    let clock = Arc::new(crate::clock::SystemClock::new());
    let measured = |what: &str, shared: &SharedCallers, presented: Presented<'_>, role: Role, times: u32| {
        let begun = std::time::Instant::now();
        for _ in 0..times {
            assert!(std::hint::black_box(shared.authenticate(std::hint::black_box(presented), role)).is_ok());
        }
        println!("{what}: {} ns", begun.elapsed().as_nanos() / u128::from(times));
    };
    let world = |more: u32| {
        let mut callers = everybody();
        for number in 0..more {
            let hash = TokenHash::of(format!("cst_{number:064}").as_bytes());
            callers.push(new(&format!("caller-{number}"), agent(&["*"]), KnownBy::Token(hash)));
        }
        let hash = TokenHash::of(format!("cst_{:064}", 999_999_999).as_bytes());
        callers.push(new("last", agent(&["*"]), KnownBy::Token(hash)));
        let callers = Callers::of_issuers(callers, vec![Issuer::new(settings(), Some(keys()))]);
        SharedCallers::new(callers, Arc::<crate::clock::SystemClock>::clone(&clock))
    };
    let far = "\"exp\":253402300000".to_owned();
    let header = |token: &str| format!("Bearer {token}");
    for more in [0, 1_000] {
        let shared = world(more);
        let bearer = header(&format!("cst_{:064}", 999_999_999));
        let presented = Presented { authorization: Authorization::One(bearer.as_bytes()), peer: None };
        measured(&format!("bearer, {more} others"), &shared, presented, Role::Agent, 1_000_000);
    }
    let shared = world(1_000);
    let (certified, _) = certificate(&[], &["spiffe://acme.com/ns/prod/sa/agent"]);
    let Peer::Certificate { address, certificate } = certified else { return };
    let not_after = Timestamp::from_micros(i64::MAX);
    let certificate = Arc::new(PeerCertificate { not_after, ..PeerCertificate::clone(&certificate) });
    let certified = Peer::Certificate { address, certificate };
    let presented = Presented { authorization: Authorization::None, peer: Some(&certified) };
    measured("certificate, a SPIFFE pattern", &shared, presented, Role::Agent, 1_000_000);
    let root = Peer::Process { uid: 0, pid: None };
    let presented = Presented { authorization: Authorization::None, peer: Some(&root) };
    measured("uid", &shared, presented, Role::Operator, 1_000_000);
    for (key, name) in [(&KEYS.rsa, "rsa"), (&KEYS.ec, "ec"), (&KEYS.ed, "ed")] {
        let claims = said(&[]).replacen(&format!("\"exp\":{}", NOON + 3_600), &far, 1);
        let bearer = header(&key.token(&key.header(name), &claims));
        let presented = Presented { authorization: Authorization::One(bearer.as_bytes()), peer: None };
        measured(&format!("{}, known", key.algorithm()), &shared, presented, Role::Approver, 200_000);
        let begun = std::time::Instant::now();
        for _ in 0..5_000 {
            shared.now().forget_tokens();
            let _ = std::hint::black_box(shared.authenticate(presented, Role::Approver));
        }
        println!("{}, not known: {} ns", key.algorithm(), begun.elapsed().as_nanos() / 5_000);
    }
}
