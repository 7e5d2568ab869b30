//! Compiles `proto/` without `protoc`: protox reads the files, tonic writes the code.

use std::path::PathBuf;
use std::{env, error, fs};

use prost::Message as _;

const FILES: [&str; 5] = [
    "secateur/export/v1/export.proto",
    "secateur/export/v2/export.proto",
    "secateur/history/v1/history.proto",
    "secateur/sidecar/v1/gossip.proto",
    "secateur/sidecar/v1/sidecar.proto",
];

fn main() -> Result<(), Box<dyn error::Error>> {
    // Asked when it runs: a build directory may be shared by checkouts in several places.
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES, [root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Payloads are handed on without copying them.
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
