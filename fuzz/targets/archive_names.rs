//! Keys, days, digests and addresses of an archive: what is read prints as it was, and no key
//! leads anywhere else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_archive::{ArchiveUrl, Day, Digest, PartKey};
use secateur_fuzz::{MESSAGE, within};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let limit = 16 * text.len() + MESSAGE;
    if let Ok((key, kind)) = within(limit, || PartKey::parse(text)) {
        assert_eq!(key.name(kind), text);
        assert_eq!(text.split('/').count(), 3);
        assert!(text.split('/').all(|part| !matches!(part, "" | "." | "..")));
    }
    if let Ok(day) = within(limit, || text.parse::<Day>()) {
        assert_eq!(day.to_string(), text);
    }
    if let Ok(digest) = within(limit, || text.parse::<Digest>()) {
        assert_eq!(digest.to_string(), text);
    }
    if let Ok(url) = within(limit, || text.parse::<ArchiveUrl>()) {
        if let ArchiveUrl::S3 { prefix, .. } = &url {
            assert!(prefix.split('/').all(|part| part != ".."));
            assert_eq!(url.to_string().parse::<ArchiveUrl>().ok(), Some(url));
        }
    }
});
