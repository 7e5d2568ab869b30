//! 32-byte identities that must not be mixed up: a block's hash and a transaction's id.

use std::fmt;
use std::str::FromStr;

use crate::CoreError;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }

        impl FromStr for $name {
            type Err = CoreError;

            fn from_str(text: &str) -> Result<Self, CoreError> {
                parse_hex($what, text).map(Self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

identity!(
    /// The hash that names a block.
    BlockHash,
    "block hash"
);
identity!(
    /// The id that names a transaction.
    TxId,
    "transaction id"
);

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8; 32]) -> fmt::Result {
    f.write_str("0x")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn parse_hex(what: &'static str, text: &str) -> Result<[u8; 32], CoreError> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let mut bytes = [0u8; 32];
    let (pairs, odd) = digits.as_chunks::<2>();
    if pairs.len() != bytes.len() || !odd.is_empty() {
        return Err(CoreError::decode(what, "64 hexadecimal digits are wanted"));
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = nibble(what, *high)? << 4 | nibble(what, *low)?;
    }
    Ok(bytes)
}

fn nibble(what: &'static str, digit: u8) -> Result<u8, CoreError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(CoreError::decode(what, "a character is not a hexadecimal digit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_what_it_prints() {
        let id = TxId(std::array::from_fn(|i| u8::try_from(i * 7).unwrap()));
        assert_eq!(id.to_string().parse::<TxId>().unwrap(), id);
        assert_eq!(id.to_string()[2..].parse::<TxId>().unwrap(), id);
    }

    #[test]
    fn an_id_of_the_wrong_length_or_alphabet_is_refused() {
        for text in ["", "0x", "0x12", &"g".repeat(64), &"0".repeat(63), &"0".repeat(65)] {
            assert!(text.parse::<BlockHash>().is_err(), "{text}");
        }
    }
}
