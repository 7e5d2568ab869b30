//! Which logs an index keeps: none, all, or those of chosen addresses or first topics.

use std::fmt;

use alloy_primitives::{Address, B256};

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
