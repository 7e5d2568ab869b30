//! What is told of a height and of a blob: the engine's own answer, and whether anybody can sign for
//! what nobody has signed for yet, which depends on the validators that are configured.

use secateur_sidecar::engine::{BlobStatus, ExplainBlob, HeightStatus};
use secateur_sidecar::notice::Verifier;
use serde::Serialize;

/// An answer of the engine, with that.
#[derive(Debug, Serialize)]
pub(crate) struct Told<T> {
    #[serde(flatten)]
    answer: T,
    /// Nobody has signed for it, and by the configuration nobody can.
    no_signer: bool,
}

fn is_unsigned(blob: &BlobStatus) -> bool {
    blob.records.is_empty()
}

impl Told<HeightStatus> {
    /// A height, by the validators that are known.
    pub(crate) fn height(answer: HeightStatus, verifier: &Verifier) -> Self {
        let unsigned = answer.blobs.iter().any(is_unsigned);
        let signer = answer.proposer.as_ref().map(|it| verifier.has_signer(it, answer.height));
        Self { no_signer: unsigned && signer == Some(false), answer }
    }
}

impl Told<ExplainBlob> {
    /// A blob, in the same way.
    pub(crate) fn blob(answer: ExplainBlob, verifier: &Verifier) -> Self {
        let signer = verifier.has_signer(&answer.proposer, answer.height);
        Self { no_signer: is_unsigned(&answer.blob) && !signer, answer }
    }
}
