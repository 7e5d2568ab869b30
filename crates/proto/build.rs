//! Compiles `proto/` without `protoc`: protox reads the files, tonic writes the code.

use std::path::PathBuf;
use std::{env, error, fs};

use prost::Message as _;

const FILES: [&str; 9] = [
    "secateur/export/v1/export.proto",
    "secateur/export/v2/export.proto",
    "secateur/history/v1/history.proto",
    "secateur/sidecar/v1/gossip.proto",
    "secateur/sidecar/v1/sidecar.proto",
    "secateur/utxo/v1/utxo.proto",
    "teranode/blockassembly.proto",
    "teranode/blockchain.proto",
    "teranode/pruner.proto",
];

/// Packages that others serve: nobody learns of them by asking us.
const ASKED: [&str; 3] = ["blockassembly_api", "blockchain_api", "google.protobuf"];

/// Answers that commands print as JSON, as they are.
const SHOWN: [&str; 14] = [
    "StatusResponse",
    "Counts",
    "Progress",
    "Done",
    "PlanResponse",
    "PruneResponse",
    "Job",
    "JobsResponse",
    "ExplainResponse",
    "Record",
    "Input",
    "Output",
    "Block",
    "TriggerResponse",
];

fn main() -> Result<(), Box<dyn error::Error>> {
    // Asked when it runs: a build directory may be shared by checkouts in several places.
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES, [root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut served = descriptors.clone();
    served.file.retain(|file| !ASKED.contains(&file.package()));
    fs::write(out.join("descriptors.bin"), served.encode_to_vec())?;
    let mut generator = tonic_prost_build::configure()
        // Payloads are handed on without copying them.
        .bytes(".")
        .btree_map(".secateur.utxo.v1");
    for name in SHOWN {
        let path = format!(".secateur.utxo.v1.{name}");
        generator = generator.message_attribute(path, "#[derive(serde::Serialize)]");
    }
    generator.compile_fds(descriptors)?;
    Ok(())
}
