//! A message's bytes: which kind it is, and its content (`docs/format/gossip.md`).
//!
//! A notice is a kind of its own. It never travels inside a proposal part: whoever takes one there
//! could be made to act on it before the proposal is decided. So the kind is named by whoever
//! decodes, and another one is refused as [`EnvelopeError::Misplaced`].

use bytes::{BufMut as _, Bytes, BytesMut};

/// The content of a message, at most.
pub const MAX_MESSAGE_LEN: usize = 16 * 1024;
/// What goes before the content.
pub const ENVELOPE_HEAD_LEN: usize = 6;

const MAGIC: [u8; 4] = *b"SCTG";
const VERSION: u8 = 1;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An archive notice.
    Notice,
    /// A piece of a proposal. This crate carries none; embedders that put theirs into envelopes
    /// use this kind.
    ProposalPart,
}

impl Kind {
    const fn tag(self) -> u8 {
        match self {
            Self::Notice => 1,
            Self::ProposalPart => 2,
        }
    }

    /// A word for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Notice => "archive notice",
            Self::ProposalPart => "proposal part",
        }
    }
}

/// What is wrong with a message's bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Too many of them, or none.
    #[error("a message has 1 to {MAX_MESSAGE_LEN} bytes, not {len}; it was not sent or taken")]
    Length {
        /// How many.
        len: usize,
    },
    /// They are not a message of ours.
    #[error("these bytes are not a gossip message: {reason}; they were not taken")]
    Foreign {
        /// Why not.
        reason: &'static str,
    },
    /// A message where another kind belongs.
    #[error("{} came where {} belongs; it was not taken", found.name(), wanted.name())]
    Misplaced {
        /// What it is.
        found: Kind,
        /// What should be there.
        wanted: Kind,
    },
}

impl EnvelopeError {
    /// A short word for counters and answers.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Length { .. } => "length",
            Self::Foreign { .. } => "foreign",
            Self::Misplaced { .. } => "misplaced",
        }
    }
}

/// A message: opaque bytes of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    kind: Kind,
    content: Bytes,
}

impl Message {
    /// A message of a kind; refuses too many bytes.
    pub fn new(kind: Kind, content: impl Into<Bytes>) -> Result<Self, EnvelopeError> {
        let content = content.into();
        check_len(content.len())?;
        Ok(Self { kind, content })
    }

    /// An archive notice, as `secateur-core` encodes it.
    pub fn notice(content: impl Into<Bytes>) -> Result<Self, EnvelopeError> {
        Self::new(Kind::Notice, content)
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its content.
    pub fn content(&self) -> &Bytes {
        &self.content
    }

    /// The same, in a buffer of its own.
    pub(super) fn detached(&self) -> Self {
        Self { kind: self.kind, content: Bytes::copy_from_slice(&self.content) }
    }

    /// Its bytes for the wire.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(ENVELOPE_HEAD_LEN + self.content.len());
        bytes.put_slice(&MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_u8(self.kind.tag());
        bytes.put_slice(&self.content);
        bytes.freeze()
    }

    /// Reads a message of any kind. Its content is not copied.
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let kind = kind_of(bytes)?;
        let content = bytes.slice(ENVELOPE_HEAD_LEN..);
        check_len(content.len())?;
        Ok(Self { kind, content })
    }

    /// Reads a message of one kind; refuses another one.
    pub fn decode_as(wanted: Kind, bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let found = kind_of(bytes)?;
        if found != wanted {
            return Err(EnvelopeError::Misplaced { found, wanted });
        }
        Self::decode(bytes)
    }
}

/// Refuses the bytes of a proposal part that are a notice. An embedder calls this where it takes
/// proposal parts; bytes that are no message of ours are its own business.
pub fn check_proposal_part(bytes: &[u8]) -> Result<(), EnvelopeError> {
    match kind_of(bytes) {
        Ok(found @ Kind::Notice) => {
            Err(EnvelopeError::Misplaced { found, wanted: Kind::ProposalPart })
        }
        Ok(Kind::ProposalPart) | Err(_) => Ok(()),
    }
}

fn check_len(len: usize) -> Result<(), EnvelopeError> {
    if len == 0 || len > MAX_MESSAGE_LEN {
        return Err(EnvelopeError::Length { len });
    }
    Ok(())
}

fn kind_of(bytes: &[u8]) -> Result<Kind, EnvelopeError> {
    let foreign = |reason| Err(EnvelopeError::Foreign { reason });
    let Some((head, _)) = bytes.split_first_chunk::<ENVELOPE_HEAD_LEN>() else {
        return foreign("they are too few");
    };
    let [a, b, c, d, version, tag] = *head;
    if [a, b, c, d] != MAGIC {
        return foreign("they begin with other bytes");
    }
    if version != VERSION {
        return foreign("their version is another one");
    }
    match tag {
        1 => Ok(Kind::Notice),
        2 => Ok(Kind::ProposalPart),
        _ => foreign("their kind is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back_what_it_says() {
        for kind in [Kind::Notice, Kind::ProposalPart] {
            let message = Message::new(kind, &b"hello"[..]).unwrap();
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes).unwrap(), message);
            assert_eq!(Message::decode_as(kind, &bytes).unwrap(), message);
        }
        let bytes = Message::notice(&b"\xff"[..]).unwrap().encode();
        assert_eq!(&bytes[..], b"SCTG\x01\x01\xff");
    }

    #[test]
    fn a_notice_in_a_proposal_part_is_refused() {
        let notice = Message::notice(&b"hello"[..]).unwrap().encode();
        let misplaced =
            EnvelopeError::Misplaced { found: Kind::Notice, wanted: Kind::ProposalPart };
        assert_eq!(check_proposal_part(&notice), Err(misplaced.clone()));
        assert_eq!(Message::decode_as(Kind::ProposalPart, &notice), Err(misplaced));
        let part = Message::new(Kind::ProposalPart, &b"hello"[..]).unwrap().encode();
        check_proposal_part(&part).unwrap();
        check_proposal_part(b"anything else").unwrap();
        check_proposal_part(b"").unwrap();
        let error = Message::decode_as(Kind::Notice, &part).unwrap_err();
        assert_eq!(error.label(), "misplaced");
    }

    #[test]
    fn too_many_bytes_none_and_foreign_ones_are_refused() {
        let most = vec![7; MAX_MESSAGE_LEN];
        let bytes = Message::notice(most.clone()).unwrap().encode();
        assert_eq!(Message::decode(&bytes).unwrap().content(), &most);
        for len in [0, MAX_MESSAGE_LEN + 1] {
            let error = EnvelopeError::Length { len };
            assert_eq!(Message::notice(vec![7; len]), Err(error.clone()));
            let mut bytes = b"SCTG\x01\x01".to_vec();
            bytes.resize(ENVELOPE_HEAD_LEN + len, 7);
            assert_eq!(Message::decode(&bytes.into()), Err(error));
        }
        for bytes in ["", "SCTG", "SCTG\x01", "SCTX\x01\x01x", "SCTG\x02\x01x", "SCTG\x01\x03x"] {
            let error = Message::decode(&Bytes::from(bytes)).unwrap_err();
            assert_eq!(error.label(), "foreign", "{bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_and_what_is_read_says_the_same(
            tail in proptest::collection::vec(proptest::num::u8::ANY, 0..64),
            head in proptest::sample::select(vec![&b""[..], b"SCTG", b"SCTG\x01", b"SCTG\x01\x01"]),
        ) {
            let bytes = Bytes::from([head, &tail].concat());
            let read = Message::decode(&bytes);
            if let Ok(message) = &read {
                assert_eq!(message.encode(), bytes);
            }
            let notice = matches!(&read, Ok(message) if message.kind() == Kind::Notice);
            assert_eq!(Message::decode_as(Kind::Notice, &bytes).is_ok(), notice);
        }
    }
}
