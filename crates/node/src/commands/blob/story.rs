//! `explain blob`: the whole story of a blob, oldest first, and how to have it back.

use secateur_core::Height;

use super::view::{Story, hold, no_signer};
use super::{BlobDesk, read};
use crate::ui::words::{count, moment, plural};
use crate::ui::{Sheet, Ui};

pub(super) fn run(
    desk: &BlobDesk,
    height: Height,
    index: u32,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    let value = desk.story(height, index)?;
    let story: Story = read(&value)?;
    ui.answer(&value, || text(&story, desk))
}

fn text(story: &Story, desk: &BlobDesk) -> String {
    let Story { height, round, proposer, blob_count, blob, .. } = story;
    let (number, index) = (count(*height), blob.index);
    let mut sheet = Sheet::default();
    let fate = match (story.here, &story.pruned) {
        (true, _) => "is here",
        (false, Some(_)) => "was here and was pruned",
        (false, None) => "should be here and is missing (`secateur verify` tells more)",
    };
    sheet
        .line(format_args!("blob {index} of height {number} {fate}"))
        .row("commitment", &blob.commitment)
        .row("named", &blob.versioned_hash)
        .row("keccak", &blob.keccak)
        .gap();
    let of = plural(u64::from(*blob_count), "blob");
    sheet
        .row(
            "stored",
            format_args!(
                "{}: {proposer} proposed it in round {round}, one of {of};",
                moment(story.stored_at)
            ),
        )
        .row("", "its bytes were checked against the commitment and hashed here")
        .row("decided", format_args!("{}", moment(story.decided_at)));
    for (_, label, lines) in later(story) {
        for (place, line) in lines.iter().enumerate() {
            sheet.row(if place == 0 { label } else { "" }, line);
        }
    }
    if let Some(job) = &blob.job {
        sheet.row("queued", format_args!("this node is to archive it; {}", job.words()));
    }
    if story.no_signer {
        sheet.row("signers", no_signer(proposer));
    }
    if story.pruned.is_none() {
        let why = story.hold.as_deref().map_or("by nothing: the next prune takes it", hold);
        sheet.row("held", why);
    }
    sheet.row("fetch", fetch(story, desk));
    sheet.finish()
}

/// What happened after the decision, by time.
fn later(story: &Story) -> Vec<(u64, &'static str, Vec<String>)> {
    let mut found = Vec::new();
    for record in &story.blob.records {
        let (at, height) = (moment(record.archived_at), count(record.archived_at_height));
        let mut lines = vec![format!("{at}, at height {height}: by {}", record.signer)];
        lines.extend(record.locators.iter().map(|at| format!("at {}: {}", at.provider, at.key)));
        found.push((record.verified_at, "archived", lines));
        let how = match record.form.as_str() {
            "own" => "this node made the copy, read it back and compared it before it signed",
            "v0" => "the notice was checked here; it is of the compatibility form",
            _ => "the notice, its signature and its hash were checked here",
        };
        let line = format!("{}: {how}", moment(record.verified_at));
        found.push((record.verified_at, "verified", vec![line]));
    }
    if let Some(at) = story.blob.fetched_at {
        let line = format!("{}: a copy was fetched and compared here", moment(at));
        found.push((at, "fetched", vec![line]));
    }
    if let Some(pruned) = &story.pruned {
        let (at, finalized) = (moment(pruned.at), count(pruned.finalized));
        let gone = match pruned.failures {
            0 => String::new(),
            some => {
                format!("; {} of the height were gone already", plural(u64::from(some), "blob"))
            }
        };
        let line = format!("{at}, when height {finalized} was final{gone}");
        found.push((pruned.at, "pruned", vec![line]));
    }
    // Stable: what has the same second stays in the order of a blob's life.
    found.sort_by_key(|(at, ..)| *at);
    found
}

/// The very command that gives the blob.
fn fetch(story: &Story, desk: &BlobDesk) -> String {
    let (height, index) = (story.height, story.blob.index);
    if story.blob.records.is_empty() {
        return "from nowhere yet: nobody has signed for a copy".into();
    }
    let words = format!("blob fetch {height} {index} --out blob-{height}-{index}.bin");
    format!("`{}`", desk.command(&words))
}
