//! Where an archive is: a directory, or a bucket with a prefix. Credentials are never part of it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use secateur_core::MAX_LOCATOR_LEN;

use crate::ArchiveError;

const WHAT: &str = "archive address";

/// An archive's address: `/a/directory`, `file:///a/directory` or `s3://bucket/prefix`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ArchiveUrl {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket of an S3 service.
    S3 {
        /// The bucket.
        bucket: String,
        /// What goes before every key; empty, or parts joined by `/` without one at the ends.
        prefix: String,
    },
}

impl FromStr for ArchiveUrl {
    type Err = ArchiveError;

    fn from_str(text: &str) -> Result<Self, ArchiveError> {
        let refuse = |reason: &str| Err(ArchiveError::invalid(WHAT, reason));
        if text.is_empty() || text.len() > MAX_LOCATOR_LEN || text.contains(char::is_control) {
            return refuse("it is empty, too long or has control characters");
        }
        if let Some(rest) = text.strip_prefix("s3://") {
            return parse_s3(rest);
        }
        if let Some(path) = text.strip_prefix("file://") {
            if !path.starts_with('/') {
                return refuse("after file:// comes an absolute path");
            }
            return Ok(Self::Directory(PathBuf::from(path)));
        }
        if text.contains("://") {
            return refuse("a directory, file:///… or s3://bucket/prefix is wanted");
        }
        Ok(Self::Directory(PathBuf::from(text)))
    }
}

fn parse_s3(rest: &str) -> Result<ArchiveUrl, ArchiveError> {
    // The text is not repeated in the errors: it may hold a secret that was put there by mistake.
    let refuse = |reason: &str| Err(ArchiveError::invalid(WHAT, reason));
    if rest.contains(['@', '?', '#', '%', '\\']) {
        return refuse(
            "a bucket and a plain prefix are wanted after s3://; credentials come from the \
             environment or a file, never from the address",
        );
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(plain) || bucket.contains("..") {
        return refuse("a bucket's name is 3 to 63 of a-z, 0-9, '-' and '.'");
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.=+".contains(c);
    let fine = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(plain);
    if !prefix.is_empty() && !prefix.split('/').all(fine) {
        return refuse("a prefix is made of letters, digits and -_.=+, joined by single slashes");
    }
    Ok(ArchiveUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

impl fmt::Display for ArchiveUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => match std::path::absolute(path) {
                Ok(path) => write!(f, "file://{}", path.display()),
                Err(_) => write!(f, "file://{}", path.display()),
            },
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_what_they_print() {
        for text in ["s3://bucket", "s3://my.bucket/a/b", "file:///var/archive"] {
            let url: ArchiveUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text);
            assert_eq!(url.to_string().parse::<ArchiveUrl>().unwrap(), url);
        }
        let slash: ArchiveUrl = "s3://bucket/a/".parse().unwrap();
        assert_eq!(slash.to_string(), "s3://bucket/a");
        let relative: ArchiveUrl = "archive".parse().unwrap();
        assert!(relative.to_string().starts_with("file:///"));
    }

    #[test]
    fn credentials_traversal_and_other_schemes_are_refused_without_being_repeated() {
        for text in [
            "",
            "s3://",
            "s3://ab",
            "s3://Bucket/x",
            "s3://key:secret@bucket/x",
            "s3://bucket/../x",
            "s3://bucket/a//b",
            "s3://bucket/./b",
            "s3://bucket/a?x=secret",
            "s3://bucket/%2e%2e",
            "s3://bu..cket/a",
            "file://relative",
            "gs://bucket",
            "https://bucket",
            "a\nb",
        ] {
            let error = text.parse::<ArchiveUrl>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
