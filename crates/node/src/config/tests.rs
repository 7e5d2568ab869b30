//! The layers and their one table.

use super::*;
use crate::config::layers::Origin;
use crate::exit::Exit;

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
    assert!(matches!(origin(&layers), Origin::File { line: 2, .. }));
    layers.environment(variables(&[("SECATEUR_HTTP_ADDR", "127.0.0.1:2")]));
    assert_eq!(origin(&layers), Origin::Variable("SECATEUR_HTTP_ADDR".into()));
    layers.flag("http.addr", "http", Some("127.0.0.1:3".into()));
    assert_eq!(origin(&layers), Origin::Flag("http"));
    let config = Config::of(&layers).unwrap();
    assert_eq!((config.http.port(), config.limits.batch), (3, 7));
}

#[test]
fn an_unknown_key_is_refused_wherever_it_stands() {
    for text in ["[http]\nadress = \"x\"\n", "[htttp]\naddr = \"x\"\n", "addr = \"x\"\n"] {
        let error = Config::of(&file(text).unwrap()).unwrap_err().to_string();
        assert!(error.contains("there is no key"), "{text}: {error}");
        assert!(file(text).unwrap().sound().is_err(), "{text}");
    }
    let mut layers = Layers::defaults();
    layers.environment(variables(&[("SECATEUR_HTPP_ADDR", "x")]));
    let error = layers.sound().unwrap_err().to_string();
    assert!(error.contains("$SECATEUR_HTPP_ADDR"), "{error}");
    assert!(error.contains("did you mean SECATEUR_HTTP_ADDR?"), "{error}");
    let mut layers = Layers::defaults();
    layers.environment(variables(&[("SECATEUR_DATA", "x"), ("HOME", "/")]));
    layers.sound().unwrap();
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
    checked(&Layers::defaults(), Starts::Any).unwrap();
    let reached = file("[index]\nhttp = \"0.0.0.0:7750\"\n").unwrap();
    assert_eq!(checked(&reached, Starts::Index).unwrap_err().exit(), Exit::Refused);
    checked(&reached, Starts::Node).unwrap();
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
        let error = checked(&layers, Starts::Any).expect_err(line);
        assert_eq!(error.exit(), Exit::Usage, "{line}: {error}");
        let error = error.to_string();
        assert_eq!(error.matches("nothing was changed").count(), 1, "{line}: {error}");
        assert!(!error.contains("secret"), "{error}");
        if line.contains("gopher") && section == "index" {
            assert!(error.contains("https://host:port"), "{error}");
        }
    }
}

/// `config check` passed what `node` refused: values were judged where they were used, by each service
/// for itself, and the first bad one ended it. Now one validation judges them all for everyone.
#[test]
fn all_that_a_node_would_refuse_is_one_error_with_the_lines_of_the_file() {
    let text = "[policy]\ntarget_bytes = 1\n\n[follow]\nurl = \"htp://me:secret@x\"\n\n[http]\n\
                addr = \"127.0.0.1:7741\"\nadress = 1\n\n[log]\nlevel = \"loud\"\n";
    for starts in [Starts::Node, Starts::Any] {
        let error = checked(&file(text).unwrap(), starts).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        let error = error.to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert!(lines[0].starts_with("the configuration has 5 errors (read from /"), "{error}");
        assert!(lines[0].ends_with("; nothing was changed"), "{error}");
        for (at, place, wanted) in [
            (1, "secateur.toml:2: ", "a budget of 1 B is too small; the least is 512KiB"),
            (2, "secateur.toml:5: ", "follow.url = `…`"),
            (3, "secateur.toml:8: ", "127.0.0.1:7741 are the same address"),
            (4, "secateur.toml:9: ", "there is no key http.adress; did you mean http.addr?"),
            (5, "secateur.toml:12: ", "`loud` is no level"),
        ] {
            let line = lines[at];
            assert!(line.contains(place) && line.contains(wanted), "{line}");
        }
        assert!(error.contains("did you mean http?") && !error.contains("secret"), "{error}");
    }
}

#[test]
fn a_word_that_is_no_level_of_the_log_is_refused_and_a_filter_is_taken() {
    let level = |text: &str| Log::of(&file(&format!("[log]\nlevel = \"{text}\"\n")).unwrap());
    for good in ["warn", "INFO", "off", "info,secateur_store=debug", "secateur[span]=trace"] {
        level(good).unwrap();
    }
    for (bad, near) in [("loud", None), ("debgu", Some("debug")), ("info,hyper", None)] {
        let error = level(bad).unwrap_err().to_string();
        assert_eq!(error.contains("did you mean"), near.is_some(), "{error}");
        assert!(near.is_none_or(|near| error.contains(near)), "{error}");
    }
}

#[test]
fn a_word_that_is_nearly_one_of_a_list_is_answered_with_the_one_that_is_meant() {
    for (text, meant) in [
        ("[utxo]\ntrigger = \"mind\"\n", "did you mean mined?"),
        ("[index]\nverify = \"ful\"\n", "did you mean full?"),
        ("[policy]\nclock = \"chian\"\n", "did you mean chain?"),
        ("[archive]\nread_through = \"ture\"\n", "did you mean true?"),
    ] {
        let error = Config::of(&file(text).unwrap()).unwrap_err().to_string();
        assert!(error.contains(meant), "{error}");
    }
    let error = Config::of(&file("[limits]\nbatch = \"12x\"\n").unwrap()).unwrap_err().to_string();
    assert!(!error.contains("did you mean"), "{error}");
}

#[test]
fn addresses_of_one_service_that_overlap_are_refused() {
    for (text, starts) in [
        ("[http]\naddr = \"127.0.0.1:9\"\n[grpc]\naddr = \"127.0.0.1:9\"\n", Starts::Node),
        ("[utxo]\nlisten = \"127.0.0.1:8097\"\n", Starts::Utxo),
    ] {
        let layers = file(text).unwrap();
        for starts in [starts, Starts::Any] {
            let error = checked(&layers, starts).unwrap_err().to_string();
            assert!(error.contains("same address"), "{error}");
        }
        checked(&layers, Starts::Index).unwrap();
    }
    let any = "[http]\naddr = \"127.0.0.1:0\"\n[grpc]\naddr = \"127.0.0.1:0\"\n";
    checked(&file(any).unwrap(), Starts::Any).unwrap();
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_the_line_of_the_mistake() {
    let error = Config::of(&file("[http]\n\naddr = = 1\n").unwrap()).unwrap_err().to_string();
    assert!(error.contains("secateur.toml:3: this is not TOML"), "{error}");
}

#[test]
fn a_size_or_a_time_takes_its_unit_in_every_section() {
    let text = "[policy]\ntarget_bytes = \"64G\"\nretain_days = \"14d\"\ntrigger = \"timer:1min\"\n\
                [limits]\nbody_bytes = \"5M\"\ntimeout_seconds = \"1min\"\n\
                [follow]\nurl = \"http://x\"\npoll_ms = \"2s\"\ntimeout_seconds = \"90s\"\n\
                [archive]\ntimeout_seconds = \"2min\"\npart_bytes = \"1.5G\"\n\
                [index]\nretention_days = \"12w\"\nalarm_seconds = \"2min\"\npause_seconds = \"90s\"\n[sidecar]\nask_seconds = \"1h\"\n\
                providers = [{ kind = \"s3\", name = \"a\", url = \"s3://bucket/a\", timeout_seconds = \"2min\" }]\n\
                [utxo]\njob_timeout_seconds = \"1h\"\nprogress_seconds = \"1min\"\n";
    let config = Config::of(&file(text).unwrap()).unwrap();
    let mut policy = PrunePolicy::default();
    config.apply_policy(&mut policy).unwrap();
    assert_eq!((policy.target_bytes, policy.retain_days), (64 << 30, 14));
    assert_eq!((config.limits.body_bytes, config.limits.timeout.as_secs()), (5 << 20, 60));
    let follow = config.follow.unwrap();
    assert_eq!((follow.poll.as_secs(), follow.timeout.as_secs()), (2, 90));
    assert_eq!(config.sidecar.mesh.ask_every.as_secs(), 3_600);
    assert!(matches!(
        config.sidecar.providers.as_slice(),
        [BlobPlace::S3 { timeout_seconds: 120, .. }]
    ));
    assert_eq!(config.utxo.pruner.progress_interval.as_secs(), 60);
    let error = Config::of(&file("[policy]\nretain_days = \"36h\"\n").unwrap()).unwrap_err();
    assert!(error.to_string().contains("whole number of days"), "{error}");
}

#[test]
fn an_address_that_is_not_one_is_not_repeated() {
    let mut layers = Layers::defaults();
    layers.flag("index.sink", "sink", Some("postgres//me:secret@host/db".into()));
    let error = layers.read("index.sink", crate::indexer::RowsInto::parse).unwrap_err();
    assert!(error.to_string().contains("--sink: index.sink"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn every_key_is_named_in_the_documentation() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let pages = std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|name| name == "md"));
    let text: String = pages.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let named = |key: &Key| {
        let (section, short) = key.name.split_once('.').unwrap();
        // In full, in a table of its section, or in an example of the file.
        let in_file = text.split(&format!("[{section}]")).skip(1).any(|rest| {
            let end = rest.find("\n[").unwrap_or(rest.len());
            rest[..end].lines().any(|line| line.trim_start().starts_with(short))
        });
        in_file || text.contains(key.name) || text.contains(&format!("`{short}`"))
    };
    let missing: Vec<&str> =
        keys::KEYS.iter().filter(|key| !named(key)).map(|key| key.name).collect();
    assert!(missing.is_empty(), "no page in docs/ names {missing:?}");
}

#[test]
fn every_key_has_a_section_and_help_and_no_two_share_a_variable() {
    let mut names: Vec<String> = keys::KEYS.iter().map(Key::variable).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), keys::KEYS.len());
    assert!(keys::KEYS.iter().all(|key| key.name.contains('.') && !key.help.is_empty()));
}
