//! The layers and their one table.

use super::*;
use crate::config::layers::Origin;

fn file(text: &str) -> Result<Layers, anyhow::Error> {
    let place = tempfile::tempdir()?;
    let path = place.path().join("secateur.toml");
    std::fs::write(&path, text)?;
    let mut layers = Layers::defaults();
    layers.file(&path)?;
    Ok(layers)
}

fn variables(given: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    given
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect::<Vec<_>>()
        .into_iter()
}

#[test]
fn the_defaults_alone_are_a_configuration() {
    let config = Config::of(&Layers::defaults()).unwrap();
    assert_eq!(config.http.to_string(), "127.0.0.1:7740");
    assert_eq!(config.grpc.to_string(), "127.0.0.1:7741");
    assert!(config.follow.is_none() && config.tls.is_none() && config.policy.is_empty());
}

#[test]
fn a_flag_outranks_the_environment_which_outranks_the_file_which_outranks_the_default() {
    let mut layers = file("[http]\naddr = \"127.0.0.1:1\"\n[limits]\nbatch = 7\n").unwrap();
    let origin = |layers: &Layers| layers.get("http.addr").unwrap().origin.clone();
    assert!(matches!(origin(&layers), Origin::File(_)));
    layers.environment(variables(&[("SECATEUR_HTTP_ADDR", "127.0.0.1:2")])).unwrap();
    assert_eq!(origin(&layers), Origin::Variable("SECATEUR_HTTP_ADDR".into()));
    layers.flag("http.addr", "http", Some("127.0.0.1:3".into()));
    assert_eq!(origin(&layers), Origin::Flag("http"));
    let config = Config::of(&layers).unwrap();
    assert_eq!((config.http.port(), config.limits.batch), (3, 7));
}

#[test]
fn an_unknown_key_is_refused_wherever_it_stands() {
    for text in ["[http]\nadress = \"x\"\n", "[htttp]\naddr = \"x\"\n", "addr = \"x\"\n"] {
        let error = file(text).unwrap_err().to_string();
        assert!(error.contains("there is no key"), "{text}: {error}");
    }
    let mut layers = Layers::defaults();
    let error = layers.environment(variables(&[("SECATEUR_HTPP_ADDR", "x")])).unwrap_err();
    assert!(error.to_string().contains("SECATEUR_HTPP_ADDR"), "{error}");
    layers.environment(variables(&[("SECATEUR_DATA", "x"), ("HOME", "/")])).unwrap();
}

#[test]
fn a_bad_value_is_named_with_its_origin() {
    for (text, wanted) in [
        ("[http]\naddr = \"localhost\"\n", "an address such as"),
        ("[limits]\nconcurrency = 0\n", "0 is not allowed"),
        ("[log]\njson = \"yes\"\n", "true or false"),
        ("[policy]\ntarget_bytes = \"much\"\n", "policy.target_bytes"),
        ("[tls]\ncert = \"a.pem\"\n", "go together"),
        ("[limits]\nbatch = [1]\n", "not a text, a number"),
        ("[follow]\nurl = \"http://x\"\nbatch = 257\n", "at most 256"),
    ] {
        let read = file(text).and_then(|layers| Ok(Config::of(&layers)?));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn what_an_index_would_refuse_is_refused_by_a_check_and_said_once() {
    check_index(&Layers::defaults()).unwrap();
    let reached = file("[index]\nhttp = \"0.0.0.0:7750\"\n").unwrap();
    assert_eq!(check_index(&reached).unwrap_err().exit(), crate::exit::Exit::Refused);
    for (section, line) in [
        ("index", "on_pruned = \"x\""),
        ("index", "verify = \"x\""),
        ("index", "codec = \"x\""),
        ("index", "workers = 0"),
        ("index", "workers = \"a\""),
        ("index", "retention_days = -1"),
        ("index", "http = \"nohost\""),
        ("index", "budget_bytes = \"-1\""),
        ("index", "budget_bytes = 0"),
        ("index", "sink = 5"),
        ("index", "consumer = \"a b/c\""),
        ("index", "source = \"http://me:secret@host:1\""),
        ("index", "source = \"gopher://x\""),
        ("index", "token_file = \"/nonexistent\""),
        ("archive", "url = \"gopher://x\""),
        ("archive", "part_blocks = 0"),
        ("archive", "part_bytes = \"x\""),
        ("archive", "part_bytes = \"9EiB\""),
        ("archive", "acknowledge = 3"),
        ("archive", "endpoint = \"notaurl\""),
        ("archive", "credentials = \"/nonexistent\""),
        ("sidecar", "trust = \"hope\""),
        ("sidecar", "signers = \"anybody\""),
        ("sidecar", "budget_bytes = \"-1\""),
        ("sidecar", "identity = \"0x\"\nkey_file = \"k\""),
    ] {
        let layers = file(&format!("[{section}]\n{line}\n")).unwrap();
        let checked = Config::of(&layers).and_then(|_| check_index(&layers));
        let error = checked.expect_err(line);
        assert_eq!(error.exit(), crate::exit::Exit::Usage, "{line}: {error}");
        let error = error.to_string();
        assert_eq!(error.matches("nothing was changed").count(), 1, "{line}: {error}");
        assert!(!error.contains("secret"), "{error}");
        if line.contains("gopher") && section == "index" {
            assert!(error.contains("https://host:port"), "{error}");
        }
    }
}

#[test]
fn an_address_that_is_not_one_is_not_repeated() {
    let mut layers = Layers::defaults();
    layers.flag("index.sink", "sink", Some("postgres//me:secret@host/db".into()));
    let error = layers.read("index.sink", crate::indexer::RowsInto::parse).unwrap_err();
    assert!(error.to_string().contains("(from --sink)"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn every_key_has_a_section_and_help_and_no_two_share_a_variable() {
    let mut names: Vec<String> = keys::KEYS.iter().map(Key::variable).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), keys::KEYS.len());
    assert!(keys::KEYS.iter().all(|key| key.name.contains('.') && !key.help.is_empty()));
}
