//! Who is at the other end of a connection, and what is more than one caller's.

use super::*;

pub(super) fn certificate(dns: &[&str], uris: &[&str]) -> (Peer, Arc<AtomicBool>) {
    let trusted = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&trusted);
    let certificate = PeerCertificate {
        dns_names: dns.iter().map(|name| (*name).to_owned()).collect(),
        uris: uris.iter().map(|uri| (*uri).to_owned()).collect(),
        digest: [7; 32],
        not_after: Timestamp::from_micros((NOON + 60) * 1_000_000),
        trust: Trust::new(move || asked.load(Ordering::SeqCst)),
    };
    let address = SocketAddr::from(([10, 0, 0, 1], 4000));
    (Peer::Certificate { address, certificate: Arc::new(certificate) }, trusted)
}

#[test]
fn a_certificate_is_the_one_caller_that_it_names() {
    let world = World::new();
    for (dns, uris, want) in [
        (&["agent.acme.com"][..], &[][..], Ok("dns")),
        (&["x.acme.com", "agent.acme.com"], &[], Ok("dns")),
        (&["*.acme.com"], &[], Err(AuthError::Invalid)),
        (&[], &["agent.acme.com"], Err(AuthError::Invalid)),
        (&["urn:x:1"], &[], Err(AuthError::Invalid)),
        (&[], &["spiffe://acme.com/ns/prod/sa/agent"], Ok("spiffe")),
        (&["other"], &["spiffe://acme.com/ns/prod/sa/agent"], Ok("spiffe")),
        (&[], &["spiffe://acme.com/ns/prod/sa/agent", "urn:y"], Err(AuthError::Invalid)),
        (&[], &["spiffe://acme.com/ns/prod/x/sa/agent"], Err(AuthError::Invalid)),
        (&["agent.acme.com"], &["spiffe://acme.com/ns/prod/sa/agent"], Err(AuthError::Ambiguous)),
        (&["agent.acme.com"], &["urn:x:1"], Err(AuthError::Ambiguous)),
        (&[], &[], Err(AuthError::Invalid)),
    ] {
        let (peer, _) = certificate(dns, uris);
        let got = world.peer(&peer, Role::Agent).map(|credential| credential.caller().name.to_string());
        assert_eq!(got, want.map(str::to_owned), "{dns:?} {uris:?}");
    }
    let (exact, _) = certificate(&[], &["spiffe://acme.com/ops"]);
    assert!(world.peer(&exact, Role::Operator).is_ok());
    let two = certificate(&[], &["spiffe://acme.com/ops", "spiffe://acme.com/x"]).0;
    assert_eq!(world.peer(&two, Role::Operator).err(), Some(AuthError::Invalid));
}

#[test]
fn a_certificate_is_good_before_its_end_and_while_it_is_vouched_for() {
    let world = World::new();
    let (peer, trusted) = certificate(&["agent.acme.com"], &[]);
    let credential = world.peer(&peer, Role::Agent).unwrap();
    trusted.store(false, Ordering::SeqCst);
    assert_eq!(world.peer(&peer, Role::Agent).err(), Some(AuthError::Untrusted));
    assert!(!credential.is_good());
    trusted.store(true, Ordering::SeqCst);
    assert!(credential.is_good());
    world.clock.advance(Duration::from_secs(60) - Duration::from_micros(1));
    assert!(credential.is_good() && world.peer(&peer, Role::Agent).is_ok());
    world.clock.advance(Duration::from_micros(1));
    assert!(!credential.is_good());
    assert_eq!(world.peer(&peer, Role::Agent).err(), Some(AuthError::Expired));
}

#[tokio::test]
async fn whoever_waits_for_the_end_of_a_certificate_or_a_token_is_woken() {
    let world = World::new();
    let (peer, trusted) = certificate(&["agent.acme.com"], &[]);
    let first = world.peer(&peer, Role::Agent).unwrap();
    let second = world.bearer(&token(&[]), Role::Approver).unwrap();
    let first = tokio::spawn(async move { first.ended().await });
    let second = tokio::spawn(async move { second.ended().await });
    tokio::task::yield_now().await;
    world.shared.end_expired();
    tokio::task::yield_now().await;
    assert!(!first.is_finished() && !second.is_finished());
    trusted.store(false, Ordering::SeqCst);
    world.shared.end_expired();
    first.await.unwrap();
    assert!(!second.is_finished());
    world.clock.advance(Duration::from_secs(3_630));
    world.shared.end_expired();
    second.await.unwrap();
}

#[test]
fn a_header_decides_alone_and_a_user_id_is_only_its_own_callers() {
    let world = World::new();
    let root = Peer::Process { uid: 0, pid: Some(1) };
    let (certified, _) = certificate(&["agent.acme.com"], &[]);
    assert!(world.peer(&root, Role::Operator).is_ok());
    assert_eq!(world.peer(&Peer::Process { uid: 1, pid: None }, Role::Operator).err(), Some(AuthError::Missing));
    assert_eq!(world.peer(&Peer::Unknown, Role::Operator).err(), Some(AuthError::Missing));
    for (peer, role) in [(&root, Role::Operator), (&certified, Role::Agent)] {
        let with = |authorization| world.shared.authenticate(Presented { authorization, peer: Some(peer) }, role).err();
        assert_eq!(with(Authorization::One(b"Bearer nonsense")), Some(AuthError::Invalid));
        assert_eq!(with(Authorization::One(b"Basic x")), Some(AuthError::Missing));
        assert_eq!(with(Authorization::One(b"")), Some(AuthError::Missing));
        assert_eq!(with(Authorization::Several), Some(AuthError::Missing));
        let person = format!("Bearer {}", token(&[]));
        let has = Role::Approver;
        assert_eq!(with(Authorization::One(person.as_bytes())), Some(AuthError::WrongRole { has, needs: role }));
        assert_eq!(with(Authorization::None), None);
    }
    assert!(world.bearer("a.static.token", Role::Agent).is_ok(), "a static token may look like any");
}

#[test]
fn what_is_two_callers_at_once_is_nobody() {
    let twice = |known_by: &KnownBy| {
        vec![new("one", agent(&["*"]), known_by.clone()), new("two", Powers::Operator, known_by.clone())]
    };
    let world = World::of(twice(&KnownBy::User(5)), settings());
    let peer = Peer::Process { uid: 5, pid: None };
    assert_eq!(world.peer(&peer, Role::Agent).err(), Some(AuthError::Ambiguous));
    let world = World::of(twice(&KnownBy::Token(TokenHash::of(b"x"))), settings());
    assert_eq!(world.bearer("x", Role::Agent).err(), Some(AuthError::Ambiguous));
}

#[test]
fn what_a_caller_does_goes_on_counting_through_a_reload() {
    let limited =
        || vec![NewCaller { limits: CallerLimits { calls: 1, ..CallerLimits::default() }, ..everybody().remove(4) }];
    let world = World::of(limited(), settings());
    let root = Peer::Process { uid: 0, pid: None };
    let place = world.peer(&root, Role::Operator).unwrap().call().unwrap();
    world.shared.replace(Callers::expiring(limited()));
    let again = world.peer(&root, Role::Operator).unwrap();
    assert_eq!(again.call().unwrap_err(), LimitReached::Calls { most: 1 });
    drop(place);
    assert!(again.call().is_ok());
}
