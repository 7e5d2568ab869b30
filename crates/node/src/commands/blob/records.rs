//! `blob records export`: who signed for which copies, one JSON object a line, for whoever keeps
//! records of their own. It is the same with `--json` and without.

use std::io::{self, Write as _};

use secateur_core::Height;
use secateur_sidecar::engine::BlobKey;

use super::BlobDesk;

pub(super) fn run(desk: &BlobDesk, from: Height) -> Result<(), anyhow::Error> {
    let mut out = io::stdout().lock();
    let mut next = Some(BlobKey { height: from, index: 0 });
    while let Some(from) = next {
        let page = desk.records(from)?;
        for record in &page.records {
            writeln!(out, "{record}")?;
        }
        // A page that does not go on would be asked for without end.
        next = page.next.filter(|next| *next > from);
    }
    Ok(out.flush()?)
}
