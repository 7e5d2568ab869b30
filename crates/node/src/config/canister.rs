//! `ic://<canister id>`: a canister of the Internet Computer as the source of an index.

#[cfg(feature = "ic")]
use {super::Layers, crate::error::NodeError, crate::indexer::Canister, std::path::PathBuf};

/// How the address of a canister begins.
pub(super) const SCHEME: &str = "ic://";

/// Why a canister is refused by a program that was built without its client.
const WITHOUT_IC: &str = "this program is built without the client of the Internet Computer; \
    build it with `cargo build --release -p secateur --features ic`";

/// Judges a source that begins like a canister's.
pub(super) fn check(text: &str) -> Result<(), String> {
    check_with(text, cfg!(feature = "ic"))
}

fn check_with(text: &str, has_client: bool) -> Result<(), String> {
    if !has_client {
        return Err(WITHOUT_IC.into());
    }
    #[cfg(feature = "ic")]
    secateur_index::source::IcOptions::parse(text)?;
    #[cfg(not(feature = "ic"))]
    let _ = text;
    Ok(())
}

/// How the canister that a source names is reached.
#[cfg(feature = "ic")]
pub(super) fn canister(layers: &Layers, source: String) -> Result<Canister, NodeError> {
    Ok(Canister {
        source,
        url: layers.must("index.ic_url", |text| Ok(text.to_owned()))?,
        identity: layers.read("index.ic_identity", |text| Ok(PathBuf::from(text)))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_client_a_canister_is_refused_and_how_to_build_it_is_said() {
        let named = "ic://rrkah-fqaaa-aaaaa-aaaaq-cai";
        let refused = check_with(named, false).unwrap_err();
        assert!(refused.contains("cargo build --release -p secateur --features ic"), "{refused}");
        assert_eq!(check(named).is_ok(), cfg!(feature = "ic"));
        assert!(check("ic://nobody").is_err());
    }
}
