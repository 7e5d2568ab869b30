//! Which logs an index keeps: none, all, or those of chosen addresses or first topics.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::{Address, B256};
use secateur_core::CoreError;

/// Which logs are kept. A log is kept if its address or its first topic is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogFilter {
    /// None.
    #[default]
    Off,
    /// Every one.
    All,
    /// Those of these addresses, and those with these first topics. Both are sorted.
    Chosen {
        /// Contracts.
        addresses: Vec<Address>,
        /// First topics.
        topics: Vec<B256>,
    },
}

impl LogFilter {
    /// Those of chosen addresses or first topics; `Off` if neither is given.
    pub fn chosen(mut addresses: Vec<Address>, mut topics: Vec<B256>) -> Self {
        if addresses.is_empty() && topics.is_empty() {
            return Self::Off;
        }
        addresses.sort_unstable();
        addresses.dedup();
        topics.sort_unstable();
        topics.dedup();
        Self::Chosen { addresses, topics }
    }

    /// Whether every log of this address and this first topic is kept, as far as they are named. Without
    /// either of them that is so only if all logs are kept.
    pub fn keeps_all_of(&self, address: Option<&Address>, topic0: Option<&B256>) -> bool {
        match self {
            Self::Off => false,
            Self::All => true,
            Self::Chosen { addresses, topics } => {
                address.is_some_and(|address| addresses.contains(address))
                    || topic0.is_some_and(|topic| topics.contains(topic))
            }
        }
    }

    /// Whether a log is kept.
    pub fn keeps(&self, address: &Address, topic0: Option<&B256>) -> bool {
        match self {
            Self::Off => false,
            Self::All => true,
            Self::Chosen { addresses, topics } => {
                addresses.binary_search(address).is_ok()
                    || topic0.is_some_and(|topic| topics.binary_search(topic).is_ok())
            }
        }
    }
}

/// Reads what `Display` writes: what `meta` holds.
impl FromStr for LogFilter {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        match text {
            "off" => return Ok(Self::Off),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let (mut addresses, mut topics) = (Vec::new(), Vec::new());
        let bad = |item: &str| CoreError::decode("logs", format!("{item:?} names no logs"));
        for item in text.split(',') {
            match item.split_once('=') {
                Some(("address", hex)) => addresses.push(hex.parse().map_err(|_| bad(item))?),
                Some(("topic", hex)) => topics.push(hex.parse().map_err(|_| bad(item))?),
                _ => return Err(bad(item)),
            }
        }
        Ok(Self::chosen(addresses, topics))
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::All => f.write_str("all"),
            Self::Chosen { addresses, topics } => {
                let mut between = "";
                for address in addresses {
                    write!(f, "{between}address={address:#x}")?;
                    between = ",";
                }
                for topic in topics {
                    write!(f, "{between}topic={topic:#x}")?;
                    between = ",";
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_logs_reads_back_as_it_was_written_and_nothing_else_does() {
        let (address, topic) = (Address::repeat_byte(0xab), B256::repeat_byte(0xcd));
        for filter in [
            LogFilter::Off,
            LogFilter::All,
            LogFilter::chosen(vec![address, Address::repeat_byte(1)], vec![topic]),
            LogFilter::chosen(vec![], vec![topic]),
        ] {
            assert_eq!(filter.to_string().parse::<LogFilter>().unwrap(), filter);
        }
        for text in ["", "none", "address=", "address=0x12", "topic=0xab,all", "data=0x"] {
            assert!(text.parse::<LogFilter>().is_err(), "{text}");
        }
    }

    #[test]
    fn all_logs_of_a_question_are_kept_if_its_address_or_its_topic_is_chosen() {
        let (address, topic) = (Address::repeat_byte(0xab), B256::repeat_byte(0xcd));
        let (other, unknown) = (Address::repeat_byte(1), B256::repeat_byte(2));
        let filter = LogFilter::chosen(vec![address], vec![topic]);
        assert!(filter.keeps_all_of(Some(&address), None));
        assert!(filter.keeps_all_of(Some(&address), Some(&unknown)));
        assert!(filter.keeps_all_of(Some(&other), Some(&topic)));
        assert!(!filter.keeps_all_of(Some(&other), None), "some may be there, by their topic");
        assert!(!filter.keeps_all_of(Some(&other), Some(&unknown)));
        assert!(!filter.keeps_all_of(None, None));
        assert!(LogFilter::All.keeps_all_of(None, None));
        assert!(!LogFilter::Off.keeps_all_of(Some(&address), Some(&topic)));
    }
}
