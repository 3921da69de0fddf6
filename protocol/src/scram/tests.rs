use super::*;

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn sent(step: ClientStep) -> String {
    match step {
        ClientStep::Send(bytes) => text(bytes),
        ClientStep::Done => panic!("nothing is sent"),
    }
}

/// The example conversation of RFC 7677.
#[test]
fn sha_256_as_in_the_rfc() {
    let nonce = "rOprNGfwEbeRWgbNEkqO";
    let mut client = ScramClient::new(Mechanism::ScramSha256, "user", "pencil", nonce).unwrap();
    assert_eq!(text(client.first()), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    assert_eq!(
        sent(client.step(server_first).unwrap()),
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    let server_final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert_eq!(client.step(server_final), Ok(ClientStep::Done));
}

/// The example conversation in MongoDB's authentication specification.
#[test]
fn sha_1_as_mongodb_salts_it() {
    let nonce = "fyko+d2lbbFgONRv9qkxdawL";
    let mut client = ScramClient::new(Mechanism::ScramSha1, "user", "pencil", nonce).unwrap();
    let server_first = b"r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,\
                         s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000";
    let proof = sent(client.step(server_first).unwrap());
    assert!(proof.ends_with(",p=MC2T8BvbmWRckDw8oWl5IVghwCY="), "{proof}");
    assert_eq!(client.step(b"v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0="), Ok(ClientStep::Done));
}

fn converse(client_password: &str, server_password: &str) -> Result<ClientStep, ScramError> {
    let mechanism = Mechanism::ScramSha256;
    let mut client = ScramClient::new(mechanism, "a,b=c", client_password, "abcd")?;
    let challenge = ServerChallenge::read(&client.first())?;
    assert_eq!(challenge.user(), "a,b=c");
    let credentials =
        Credentials::derive(mechanism, "a,b=c", server_password, b"0123456789abcdef", 4096)?;
    let (server_first, server) = challenge.challenge(credentials, Vec::new(), "xyz");
    let ClientStep::Send(client_final) = client.step(&server_first)? else { panic!() };
    client.step(&server.finish(&client_final)?)
}

#[test]
fn both_sides_agree_only_on_the_same_password() {
    assert_eq!(converse("secret", "secret"), Ok(ClientStep::Done));
    assert_eq!(converse("secret", "Secret"), Err(ScramError::Proof));
}

#[test]
fn a_client_refuses_what_is_not_safe() {
    let client = || ScramClient::new(Mechanism::ScramSha256, "u", "p", "abc").unwrap();
    let step = |message: &str| client().step(message.as_bytes());
    assert_eq!(step("r=abcd,s=AAAA,i=1"), Err(ScramError::Iterations(1)));
    assert_eq!(step("r=abcd,s=AAAA,i=4000000000"), Err(ScramError::Iterations(4_000_000_000)));
    assert_eq!(step("r=xbcd,s=AAAA,i=4096"), Err(ScramError::Nonce));
    assert_eq!(step("r=abc,s=AAAA,i=4096"), Err(ScramError::Nonce));
    assert_eq!(step("nonsense"), Err(ScramError::Malformed("server-first")));
    let mut client = client();
    client.step(b"r=abcd,s=AAAA,i=4096").unwrap();
    assert_eq!(client.step(b"v=AAAA"), Err(ScramError::Signature));
    assert_eq!(client.step(b"e=other-error"), Err(ScramError::Refused));
}

#[test]
fn secrets_are_not_shown() {
    let client = ScramClient::new(Mechanism::ScramSha256, "u", "hush", "abc").unwrap();
    assert!(!format!("{client:?}").contains("hush"));
}

#[test]
fn a_second_key_is_as_good_as_the_first() {
    let mechanism = Mechanism::ScramSha256;
    let derive = |key| Credentials::derive(mechanism, "u", key, b"0123456789abcdef", 4096).unwrap();
    for (key, expected) in [
        ("old", Ok(ClientStep::Done)),
        ("new", Ok(ClientStep::Done)),
        ("x", Err(ScramError::Proof)),
    ] {
        let mut client = ScramClient::new(mechanism, "u", key, "abcd").unwrap();
        let challenge = ServerChallenge::read(&client.first()).unwrap();
        let (first, server) = challenge.challenge(derive("old"), vec![derive("new")], "xyz");
        let ClientStep::Send(last) = client.step(&first).unwrap() else { panic!() };
        assert_eq!(server.finish(&last).and_then(|last| client.step(&last)), expected);
    }
}

#[test]
fn a_server_refuses_what_mongod_refuses() {
    let first = |text: &str| ServerChallenge::read(text.as_bytes()).is_ok();
    assert!(first("n,,n=u,r=abcd") && first("y,,n=u,r=abcd") && first("n,a=u,n=u,r=abcd,x=1"));
    for bad in [
        "",
        "n",
        "n,",
        "n,,",
        "n,,n=u",
        "n,,r=abcd,n=u",
        "n,,n=,r=abcd",
        "n,,n=u,r=abc",
        "p=tls,,n=u,r=abcd",
        "n,a=other,n=u,r=abcd",
        "n,,m=x,n=u,r=abcd",
        "x,,n=u,r=abcd",
    ] {
        assert!(!first(bad), "{bad}");
    }
    let credentials =
        Credentials::derive(Mechanism::ScramSha256, "u", "p", b"0123456789abcdef", 4096);
    let last = |text: &str| {
        let challenge = ServerChallenge::read(b"n,,n=u,r=abcd").unwrap();
        challenge
            .challenge(credentials.clone().unwrap(), Vec::new(), "xyz")
            .1
            .finish(text.as_bytes())
    };
    let malformed = Err(ScramError::Malformed("client-final"));
    assert_eq!(last(""), malformed);
    assert_eq!(last("c=eSws,r=abcdxyz,p=AAAA"), malformed);
    assert_eq!(last("c=biws,r=abcdxyz,p=?"), malformed);
    assert_eq!(last("c=biws,r=abcdxy,p=AAAA"), Err(ScramError::Nonce));
    assert_eq!(last("c=biws,r=abcdxyz,p=AAAA"), Err(ScramError::Proof));
}

/// Random messages never authenticate and never panic.
#[test]
fn random_messages_prove_nothing() {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    let credentials =
        Credentials::derive(Mechanism::ScramSha256, "u", "p", b"0123456789abcdef", 4096).unwrap();
    let alphabet = b"n,=rcpvabeswyi0123456789+/A \xff\0";
    let mut rng = StdRng::seed_from_u64(7);
    for _ in 0..20_000 {
        let mut message = |start: &[u8]| {
            let len = rng.random_range(0..40);
            let tail = (0..len).map(|_| alphabet[rng.random_range(0..alphabet.len())]);
            start.iter().copied().chain(tail.collect::<Vec<_>>()).collect::<Vec<u8>>()
        };
        let _ = ServerChallenge::read(&message(b""));
        let _ = ServerChallenge::read(&message(b"n,,n=u,r="));
        let challenge = ServerChallenge::read(b"n,,n=u,r=abcd").unwrap();
        let (_, server) = challenge.challenge(credentials.clone(), Vec::new(), "xyz");
        assert!(server.finish(&message(b"c=biws,r=abcdxyz,p=")).is_err());
    }
}
