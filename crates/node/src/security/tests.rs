//! Tokens, roles and addresses.

use std::os::unix::fs::PermissionsExt;

use prost::Message as _;

use super::*;
use crate::config::{Layers, TlsFiles, TokenFiles};

const READ: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const ADMIN: &str = "2222222222222222222222222222222222222222222222222222222222222222";
const CONSUMER: &str = "4444444444444444444444444444444444444444444444444444444444444444";
const OWN: &str = "3333333333333333333333333333333333333333333333333333333333333333";

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn guard(place: &Path, with_tokens: bool) -> Guard {
    let mut config = Config::of(&Layers::defaults()).unwrap();
    if with_tokens {
        let [read, consumer, admin] = ["read", "consumer", "admin"].map(|name| place.join(name));
        private(&read, &format!("# readers\n\n{READ}\n"));
        private(&consumer, &format!("{CONSUMER}\n"));
        let hashed = alloy_primitives::hex::encode(<sha2::Sha256 as sha2::Digest>::digest(ADMIN));
        private(&admin, &format!("sha256:{hashed}\n"));
        config.auth = TokenFiles { read: Some(read), consumer: Some(consumer), admin: Some(admin) };
    }
    Guard::new(&config, place, &Token(OWN.into())).unwrap()
}

fn bearer(token: &str) -> Vec<u8> {
    format!("Bearer {token}").into_bytes()
}

#[test]
fn without_configured_tokens_reads_are_open_and_administration_is_not() {
    let place = tempfile::tempdir().unwrap();
    let guard = guard(place.path(), false);
    assert!(guard.admit(Role::Read, None, None).is_ok());
    assert!(matches!(guard.admit(Role::Admin, None, None), Err(ApiError::Unauthenticated)));
    assert!(guard.admit(Role::Admin, Some(&bearer(OWN)), None).is_ok());
}

#[test]
fn a_token_does_what_its_role_allows_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let guard = guard(place.path(), true);
    let ask = |role, header: Option<Vec<u8>>| guard.admit(role, header.as_deref(), None);
    assert!(ask(Role::Open, None).is_ok());
    assert!(matches!(ask(Role::Read, None), Err(ApiError::Unauthenticated)));
    assert!(ask(Role::Read, Some(bearer(READ))).is_ok());
    assert!(matches!(ask(Role::Admin, Some(bearer(READ))), Err(ApiError::Forbidden)));
    for token in [ADMIN, OWN] {
        assert!(ask(Role::Read, Some(bearer(token))).is_ok());
        let caller = ask(Role::Admin, Some(bearer(token))).unwrap();
        assert_eq!(caller.token.unwrap().len(), 8);
    }
    for header in [b"Basic abc".to_vec(), b"Bearer".to_vec(), vec![0xff]] {
        assert!(matches!(ask(Role::Read, Some(header)), Err(ApiError::Unauthenticated)));
    }
    // Whoever sends a wrong one is not told to send one.
    for header in [bearer(""), bearer("x")] {
        assert!(matches!(ask(Role::Read, Some(header)), Err(ApiError::UnknownToken)));
    }
}

/// An index needed an administrator's token for its acknowledgements: there was no role between
/// reading and doing everything. A consumer reads and acknowledges.
#[test]
fn a_consumers_token_reads_and_acknowledges_and_may_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let guard = guard(place.path(), true);
    let ask = |role, token: &str| guard.admit(role, Some(&bearer(token)), None);
    for role in [Role::Open, Role::Read, Role::Consumer] {
        assert!(ask(role, CONSUMER).is_ok(), "{role:?}");
    }
    for role in [Role::Peer, Role::Admin] {
        assert!(matches!(ask(role, CONSUMER), Err(ApiError::Forbidden)), "{role:?}");
    }
    assert!(matches!(ask(Role::Consumer, READ), Err(ApiError::Forbidden)));
    assert!(ask(Role::Consumer, ADMIN).is_ok() && ask(Role::Consumer, OWN).is_ok());
    assert!(matches!(guard.admit(Role::Consumer, None, None), Err(ApiError::Unauthenticated)));
}

#[test]
fn a_file_of_consumers_alone_closes_reading_and_a_token_in_two_files_has_the_greater_role() {
    let place = tempfile::tempdir().unwrap();
    let [consumer, admin] = ["consumer", "admin"].map(|name| place.path().join(name));
    private(&consumer, &format!("{CONSUMER}\n{ADMIN}\n"));
    private(&admin, ADMIN);
    let of = |admin| TokenFiles { read: None, consumer: Some(consumer.clone()), admin };
    let alone = Tokens::read(&of(None), None, &Token(OWN.into())).unwrap();
    assert!(alone.reads_need_one());
    assert_eq!(alone.find(&bearer(CONSUMER)).unwrap().role, Role::Consumer);
    let both = Tokens::read(&of(Some(admin)), None, &Token(OWN.into())).unwrap();
    assert_eq!(both.find(&bearer(ADMIN)).unwrap().role, Role::Admin);
}

#[test]
fn a_token_file_that_others_can_read_or_that_holds_short_tokens_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tokens");
    let read = || {
        Tokens::read(
            &TokenFiles { admin: Some(path.clone()), ..TokenFiles::default() },
            None,
            &Token(OWN.into()),
        )
    };
    assert!(read().unwrap_err().to_string().contains("there is no file"));
    private(&path, ADMIN);
    assert!(read().is_ok());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(read().unwrap_err().to_string().contains("chmod 600"));
    for text in ["short", "", "# nothing\n", "sha256:12"] {
        private(&path, text);
        assert!(read().is_err(), "{text}");
    }
}

#[test]
fn an_address_that_others_reach_wants_tls_and_tokens() {
    let mut config = Config::of(&Layers::defaults()).unwrap();
    for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        config.http = loopback.parse().unwrap();
        assert!(check_bind(&config).is_ok(), "{loopback}");
    }
    for wide in ["0.0.0.0:1", "[::]:1", "192.168.0.1:1"] {
        config.http = wide.parse().unwrap();
        let error = check_bind(&config).unwrap_err();
        assert!(error.to_string().contains("tls.cert"), "{wide}: {error}");
    }
    config.tls = Some(TlsFiles { cert: "c".into(), key: "k".into() });
    assert!(check_bind(&config).is_err(), "TLS without tokens");
    config.auth.admin = Some("t".into());
    assert!(check_bind(&config).is_ok());
}

#[test]
fn every_grpc_method_has_a_role_and_an_unknown_one_has_none() {
    let files = prost_types::FileDescriptorSet::decode(secateur_proto::DESCRIPTORS).unwrap();
    let mut methods = 0;
    for file in &files.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                let role = grpc_role(&path);
                let looks = method.name().starts_with("Get")
                    || ["Fetch", "Status", "Plan", "Jobs", "Explain"].contains(&method.name());
                let wanted = match service.name() {
                    "Admin" if method.name().starts_with("Ack") => Role::Consumer,
                    "Admin" => Role::Admin,
                    "Gossip" => Role::Peer,
                    "PrunerAPI" => Role::Open,
                    "Sidecar" | "Pruner" | "Store" if !looks => Role::Admin,
                    _ => Role::Read,
                };
                assert_eq!(role, Some(wanted), "{path}");
                methods += 1;
            }
        }
    }
    assert!(methods >= 25, "{methods}");
    for path in ["", "/", "/secateur.history.v1.Admin/", "/secateur.history.v1.Admin/Drop"] {
        assert_eq!(grpc_role(path), None, "{path}");
    }
}

/// Health is open; why it is bad names files and addresses.
#[test]
fn only_callers_of_this_machine_and_those_with_a_token_read_causes() {
    let caller = |peer: &str, token: Option<&str>| Caller {
        peer: Some(peer.parse().unwrap()),
        token: token.map(str::to_owned),
    };
    for here in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        assert!(caller(here, None).may_read_causes(), "{here}");
    }
    for elsewhere in ["10.0.0.7", "2001:db8::1"] {
        assert!(!caller(elsewhere, None).may_read_causes(), "{elsewhere}");
        assert!(caller(elsewhere, Some("12345678")).may_read_causes(), "{elsewhere}");
    }
}
