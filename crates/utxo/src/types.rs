//! The words of this family as types: transactions, their outputs, who spends them, and the record
//! that a store keeps of each.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use secateur_core::{CoreError, Height};
use serde::{Deserialize, Serialize};

use crate::UtxoError;

/// Outputs of a transaction at most, and inputs: what a block of 4 GB could hold, so that a wrong
/// number cannot ask for memory without bound.
pub const MAX_PLACES: u32 = 1 << 20;
/// Outputs of all transactions together that one step creates, at most: as many as the largest transaction
/// may have by itself. An output is one byte or none of a request and some 45 in memory, so that without
/// this a request of a few kilobytes could ask for all of it.
pub const MAX_CREATED_OUTPUTS: u32 = MAX_PLACES;
/// Inputs of all transactions together that one step creates, at most: it has the record of every parent in memory.
pub const MAX_CREATED_INPUTS: usize = 1 << 18;
/// The bytes of a transaction that a record holds at most; larger ones are external files.
pub const MAX_BODY: usize = 1 << 20;

/// A hash that is shown with its bytes turned round and without a prefix, as UTXO chains do.
macro_rules! turned {
    ($(#[$doc:meta])* $name:ident, $core:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().rev().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = CoreError;

            fn from_str(text: &str) -> Result<Self, CoreError> {
                let secateur_core::$core(mut bytes) = text.parse()?;
                bytes.reverse();
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

turned!(
    /// The id of a transaction.
    TxId,
    TxId
);
turned!(
    /// The hash of a block.
    BlockId,
    BlockHash
);

/// One output of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OutPoint {
    /// The transaction.
    pub txid: TxId,
    /// Which of its outputs.
    pub n: u32,
}

impl fmt::Display for OutPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.txid, self.n)
    }
}

/// A block of the main chain that holds a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockRef {
    /// Its hash.
    pub id: BlockId,
    /// Its height.
    pub height: Height,
}

/// The file that holds a large transaction, named by what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// The whole transaction, for one that has inputs.
    Tx,
    /// Only its outputs, for one that has none, such as a coinbase.
    Outputs,
}

impl FileKind {
    /// The kind for a transaction with so many inputs.
    pub const fn of(inputs: usize) -> Self {
        if inputs == 0 { Self::Outputs } else { Self::Tx }
    }

    /// The other kind.
    pub const fn other(self) -> Self {
        match self {
            Self::Tx => Self::Outputs,
            Self::Outputs => Self::Tx,
        }
    }

    /// What a file's name ends with.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Tx => "tx",
            Self::Outputs => "outputs",
        }
    }
}

/// Where the bytes of a transaction are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// In the record; empty where nobody gave any.
    Inline(Bytes),
    /// In a file of object storage.
    External(FileKind),
}

/// A transaction that a store is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTx {
    /// Its id.
    pub txid: TxId,
    /// The outputs that it spends.
    pub inputs: Vec<OutPoint>,
    /// How many outputs it has.
    pub outputs: u32,
    /// Whether it makes new coins: it has no inputs, and its outputs ripen.
    pub coinbase: bool,
    /// Whether it is a known loser of a double spend: it is kept, and spends nothing.
    pub conflicting: bool,
    /// Its bytes.
    pub body: Body,
    /// The block that it came with; without one it is unmined.
    pub mined: Option<BlockRef>,
}

impl NewTx {
    /// How many inputs and outputs it has.
    pub(crate) const fn places(&self) -> (usize, u32) {
        (self.inputs.len(), self.outputs)
    }

    /// What can be told of a transaction without looking at others.
    pub(crate) fn check(&self) -> Result<(), UtxoError> {
        let malformed = |reason: String| UtxoError::Malformed { txid: self.txid, reason };
        if self.outputs > MAX_PLACES || self.inputs.len() > MAX_PLACES as usize {
            return Err(malformed(format!("more than {MAX_PLACES} inputs or outputs")));
        }
        if self.coinbase != self.inputs.is_empty() {
            return Err(malformed("a coinbase has no inputs, and everything else has some".into()));
        }
        if self.conflicting && (self.coinbase || self.mined.is_some()) {
            return Err(malformed(
                "what lost a double spend is in no block, and no coinbase".into(),
            ));
        }
        if let Body::Inline(body) = &self.body
            && body.len() > MAX_BODY
        {
            return Err(malformed(format!(
                "{} bytes; above {MAX_BODY} they are an external file",
                body.len()
            )));
        }
        if let Body::External(kind) = self.body
            && kind != FileKind::of(self.inputs.len())
        {
            return Err(malformed(format!(
                "with {} inputs its file is .{}",
                self.inputs.len(),
                kind.other().suffix()
            )));
        }
        let mut seen = HashSet::with_capacity(self.inputs.len());
        for spends in &self.inputs {
            if spends.txid == self.txid {
                return Err(malformed("it spends itself".into()));
            }
            if !seen.insert(spends) {
                return Err(malformed(format!("it spends {spends} twice")));
            }
        }
        Ok(())
    }
}

/// Refuses what would create too many outputs in one step, or spend too many, before anything is made for them;
/// otherwise answers how many inputs and outputs. Takes how many each transaction has; one that has more outputs than it
/// may is refused by itself.
pub fn check_places(
    each: impl IntoIterator<Item = (usize, u32)>,
) -> Result<(usize, u32), UtxoError> {
    let (mut inputs, mut outputs) = (0_usize, 0_u64);
    for (its_inputs, its_outputs) in each {
        inputs = inputs.saturating_add(its_inputs);
        outputs += Some(its_outputs).filter(|outputs| *outputs <= MAX_PLACES).map_or(0, u64::from);
    }
    if inputs > MAX_CREATED_INPUTS {
        return Err(UtxoError::TooManyInputs { inputs });
    }
    let fitting = u32::try_from(outputs).ok().filter(|outputs| *outputs <= MAX_CREATED_OUTPUTS);
    Ok((inputs, fitting.ok_or(UtxoError::TooManyOutputs { outputs })?))
}

/// Who spends an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Slot {
    /// Nobody: it is a coin.
    Unspent,
    /// A transaction whose record is here.
    Spent {
        /// The transaction.
        by: TxId,
        /// With which of its inputs.
        input: u32,
    },
    /// A transaction whose record was pruned.
    Pruned {
        /// The transaction.
        by: TxId,
        /// With which of its inputs.
        input: u32,
    },
}

impl Slot {
    /// The transaction that spends it.
    pub const fn spender(self) -> Option<(TxId, u32)> {
        match self {
            Self::Unspent => None,
            Self::Spent { by, input } | Self::Pruned { by, input } => Some((by, input)),
        }
    }

    /// What it is in a store whose steps are whole: a spender that is named and not here was pruned.
    pub(crate) fn seen(self, is_here: impl FnOnce(TxId) -> bool) -> Self {
        match self {
            Self::Spent { by, input } if !is_here(by) => Self::Pruned { by, input },
            other => other,
        }
    }
}

/// Everything that a store knows of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Record {
    /// Its id.
    pub txid: TxId,
    /// The outputs that it spends.
    pub inputs: Vec<OutPoint>,
    /// Its outputs, each with its spender.
    pub outputs: Vec<Slot>,
    /// Whether it makes new coins.
    pub coinbase: bool,
    /// Whether it lost a double spend.
    pub conflicting: bool,
    /// Whether its inputs are spent by it: not if it let them go, or lost a double spend.
    pub spending: bool,
    /// The blocks of the main chain that hold it.
    pub blocks: Vec<BlockRef>,
    /// Since which height it waits for a block.
    pub unmined_since: Option<Height>,
    /// When its record may go.
    pub delete_at_height: Option<Height>,
    /// Until when its record stays whatever else is true.
    pub preserve_until: Option<Height>,
    /// The file that holds its bytes.
    pub external: Option<FileKind>,
    /// Whether it is cut: its file or its many rows are being removed, and nothing brings it back.
    pub cut: bool,
    /// Its bytes, where the record holds them.
    #[serde(skip)]
    pub body: Bytes,
    /// Live unmined transactions that spend it and so hold it.
    pub held_by: Vec<TxId>,
}

impl Record {
    /// How many of its outputs are spent.
    pub fn spent(&self) -> usize {
        self.outputs.iter().filter(|slot| **slot != Slot::Unspent).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_and_outputs_of_one_step_are_bounded_together() {
        assert!(check_places([]).is_ok());
        let most = (MAX_CREATED_INPUTS, MAX_CREATED_OUTPUTS);
        assert_eq!(check_places([most]).unwrap(), most);
        assert!(check_places([(most.0 - 1, most.1 - 1), (1, 1)]).is_ok());
        // The first is refused by itself, and keeps nobody else from being made.
        assert!(check_places([(1, u32::MAX), (1, 2)]).is_ok());
        let told = check_places([most, (0, 1)]).unwrap_err().to_string();
        assert!(told.contains("1048577 outputs") && told.contains("at most 1048576"), "{told}");
        let told = check_places([most, (1, 0)]).unwrap_err().to_string();
        assert!(told.contains("262145 inputs") && told.contains("at most 262144"), "{told}");
    }

    #[test]
    fn an_id_is_shown_turned_round_and_read_back() {
        let mut bytes = [0; 32];
        bytes[0] = 0xab;
        bytes[31] = 0x01;
        let id = TxId(bytes);
        let shown = id.to_string();
        assert!(shown.starts_with("01") && shown.ends_with("ab") && shown.len() == 64);
        assert_eq!(shown.parse::<TxId>().unwrap(), id);
        for wrong in ["", "xy", &shown[1..], &format!("{shown}00")] {
            assert!(wrong.parse::<TxId>().is_err(), "{wrong:?}");
        }
    }
}
