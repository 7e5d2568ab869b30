//! The fields of records (`docs/format/utxo.md`), and rows made of them.

use aerospike::Value;

use crate::UtxoError;
use crate::codec::{self, PAGE_SLOTS, Page, pages};
use crate::slate::Row;
use crate::types::{FileKind, Slot, TxId};

use super::records::{Fields, Stored};

pub(super) const TXID: &str = "txid";
pub(super) const OUTPUTS: &str = "outputs";
pub(super) const COINBASE: &str = "coinbase";
pub(super) const EXTERNAL: &str = "external";
pub(super) const INPUTS: &str = "inputs";
pub(super) const BODY: &str = "body";
pub(super) const PARTS: &str = "parts";
pub(super) const INPUT_BYTES: &str = "input_bytes";
pub(super) const SPENDERS: &str = "spenders";
pub(super) const HOLDS: &str = "holds";
pub(super) const HELD: &str = "held";
pub(super) const TALLY: &str = "tally";
pub(super) const BLOCKS: &str = "blocks";
pub(super) const MINED_AT: &str = "mined_at";
pub(super) const UNMINED_SINCE: &str = "unmined_since";
pub(super) const DELETE_AT: &str = "delete_at";
pub(super) const PRESERVE_UNTIL: &str = "preserve_until";
pub(super) const CONFLICTING: &str = "conflicting";
pub(super) const SPENDING: &str = "spending";
pub(super) const CUT: &str = "cut";
/// The bytes of a part.
pub(super) const BYTES: &str = "bytes";

/// A row with its inputs, without its bytes.
pub(super) const WITH_INPUTS: &[&str] = &[
    INPUTS,
    TXID,
    OUTPUTS,
    COINBASE,
    EXTERNAL,
    PARTS,
    INPUT_BYTES,
    SPENDERS,
    HOLDS,
    HELD,
    TALLY,
    BLOCKS,
    UNMINED_SINCE,
    MINED_AT,
    DELETE_AT,
    PRESERVE_UNTIL,
    CONFLICTING,
    SPENDING,
    CUT,
];

/// The same without its inputs.
pub(super) const STATE: &[&str] = match WITH_INPUTS {
    [_, rest @ ..] => rest,
    [] => &[],
};

/// Inputs and bytes together that a transaction's own record holds at most: every spend of an output
/// writes the whole record again.
pub(super) const INLINE: usize = 1 << 16;
/// The bytes of one part: a record with it stays below what servers take.
pub(super) const PART: usize = 1 << 19;

/// Which slots of a page are spent by a live unmined transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Held([u8; PAGE_SLOTS as usize / 8]);

impl Held {
    fn decode(bytes: Option<&[u8]>) -> Result<Self, UtxoError> {
        bytes.map_or(Ok(Self::default()), |bytes| {
            let bits = bytes.try_into();
            bits.map(Self)
                .map_err(|_| UtxoError::damaged("holds", format!("{} bytes", bytes.len())))
        })
    }

    fn value(self) -> Value {
        if self.count() == 0 { Value::Nil } else { Value::Blob(self.0.to_vec()) }
    }

    pub(super) fn get(&self, at: u32) -> bool {
        let byte = usize::try_from(at / 8).ok().and_then(|byte| self.0.get(byte));
        byte.is_some_and(|byte| byte & (1 << (at % 8)) != 0)
    }

    pub(super) fn set(&mut self, at: u32, held: bool) {
        let byte = usize::try_from(at / 8).ok().and_then(|byte| self.0.get_mut(byte));
        if let Some(byte) = byte {
            let bit = 1 << (at % 8);
            if held { *byte |= bit } else { *byte &= !bit }
        }
    }

    pub(super) fn count(self) -> u16 {
        self.0.iter().map(|byte| u16::try_from(byte.count_ones()).unwrap_or(0)).sum()
    }

    /// Takes every hold away whose slot nobody spends whose record is here.
    pub(super) fn trim(&mut self, page: &Page) {
        if self.count() == 0 {
            return;
        }
        for at in 0..PAGE_SLOTS {
            if self.get(at) && !matches!(page.get(at), Some(Slot::Spent { .. })) {
                self.set(at, false);
            }
        }
    }
}

/// What a transaction's own record knows of a page that is a record of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) spent: u16,
    pub(super) held: u16,
}

impl Tally {
    pub(super) fn of(page: &Page, held: &Held) -> Self {
        Self { spent: spent(page), held: held.count() }
    }
}

/// How many slots of a page are spent.
pub(super) fn spent(page: &Page) -> u16 {
    let taken =
        (0..PAGE_SLOTS).filter(|at| page.get(*at).is_some_and(|slot| slot != Slot::Unspent));
    u16::try_from(taken.count()).unwrap_or(u16::MAX)
}

fn encode_tally(tally: &[Tally]) -> Value {
    if tally.is_empty() {
        return Value::Nil;
    }
    let pairs = tally.iter().flat_map(|one| [one.spent.to_be_bytes(), one.held.to_be_bytes()]);
    Value::Blob(pairs.flatten().collect())
}

fn decode_tally(bytes: &[u8], outputs: u32) -> Result<Vec<Tally>, UtxoError> {
    let damaged = || UtxoError::damaged("a tally", format!("{} bytes", bytes.len()));
    let wanted = pages(outputs).saturating_sub(1) as usize;
    let tally: Vec<Tally> = bytes
        .chunks(4)
        .map(|four| match four {
            [a, b, c, d] => Ok(Tally {
                spent: u16::from_be_bytes([*a, *b]),
                held: u16::from_be_bytes([*c, *d]),
            }),
            _ => Err(damaged()),
        })
        .collect::<Result<_, _>>()?;
    if tally.len() == wanted { Ok(tally) } else { Err(damaged()) }
}

/// Where the inputs and the bytes of a transaction are: in its record, or in so many parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rest {
    pub(super) parts: u32,
    pub(super) input_bytes: usize,
}

impl Rest {
    /// How many parts hold the inputs.
    pub(super) fn input_parts(self) -> u32 {
        u32::try_from(self.input_bytes.div_ceil(PART)).unwrap_or(u32::MAX).min(self.parts)
    }
}

/// The record of a transaction.
#[derive(Debug, Clone)]
pub(super) struct Main {
    /// Its row, with the first page; without inputs where they were not asked for or are in parts.
    pub(super) row: Row,
    /// The holds of its first page.
    pub(super) held: Held,
    /// Its other pages.
    pub(super) tally: Vec<Tally>,
    pub(super) rest: Rest,
    /// At which height it was cut.
    pub(super) cut_at: Option<u64>,
    pub(super) stored: Stored,
}

/// Reads fields one by one.
pub(super) struct Reader<'a>(pub(super) &'a Fields);

impl<'a> Reader<'a> {
    fn wrong(bin: &str) -> UtxoError {
        UtxoError::damaged(format!("field {bin}"), "it is of another kind")
    }

    pub(super) fn int(&self, bin: &str) -> Result<Option<i64>, UtxoError> {
        match self.0.get(bin) {
            None | Some(Value::Nil) => Ok(None),
            Some(Value::Int(number)) => Ok(Some(*number)),
            Some(_) => Err(Self::wrong(bin)),
        }
    }

    pub(super) fn bytes(&self, bin: &str) -> Result<Option<&'a [u8]>, UtxoError> {
        match self.0.get(bin) {
            None | Some(Value::Nil) => Ok(None),
            Some(Value::Blob(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(Self::wrong(bin)),
        }
    }

    pub(super) fn text(&self, bin: &str) -> Result<Option<&'a str>, UtxoError> {
        match self.0.get(bin) {
            None | Some(Value::Nil) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Self::wrong(bin)),
        }
    }

    pub(super) fn height(&self, bin: &str) -> Result<Option<u64>, UtxoError> {
        self.int(bin)?.map(codec::height).transpose()
    }

    fn flag(&self, bin: &str) -> Result<bool, UtxoError> {
        Ok(self.int(bin)?.is_some_and(|number| number != 0))
    }

    fn count(&self, bin: &str) -> Result<u32, UtxoError> {
        let number = self.int(bin)?.unwrap_or(0);
        u32::try_from(number)
            .map_err(|_| UtxoError::damaged(format!("field {bin}"), format!("it is {number}")))
    }

    pub(super) fn txid(&self) -> Result<TxId, UtxoError> {
        let bytes = self.bytes(TXID)?.and_then(|bytes| bytes.try_into().ok());
        bytes.map(TxId).ok_or_else(|| UtxoError::damaged("a record", "it has no txid"))
    }

    pub(super) fn external(&self) -> Result<Option<FileKind>, UtxoError> {
        match self.int(EXTERNAL)? {
            None => Ok(None),
            Some(1) => Ok(Some(FileKind::Tx)),
            Some(2) => Ok(Some(FileKind::Outputs)),
            Some(_) => Err(UtxoError::damaged("a kind of file", "it is unknown")),
        }
    }

    pub(super) fn rest(&self) -> Result<Rest, UtxoError> {
        let input_bytes = self.count(INPUT_BYTES)? as usize;
        Ok(Rest { parts: self.count(PARTS)?, input_bytes })
    }
}

/// Reads the record of a transaction, asked for as [`STATE`] or [`WITH_INPUTS`].
pub(super) fn decode(stored: Stored) -> Result<Main, UtxoError> {
    let read = Reader(&stored.fields);
    let outputs = read.count(OUTPUTS)?;
    if outputs > crate::MAX_PLACES {
        return Err(UtxoError::damaged("a record", format!("{outputs} outputs")));
    }
    let (first, held) = decode_page(&stored.fields, outputs, 0)?;
    let tally = decode_tally(read.bytes(TALLY)?.unwrap_or_default(), outputs)?;
    let cut_at = read.height(CUT)?;
    let behind: u32 = tally.iter().map(|page| u32::from(page.spent)).sum();
    let row = Row {
        id: 0,
        txid: read.txid()?,
        outputs,
        spent: u32::from(spent(&first)).saturating_add(behind),
        inputs: codec::decode_inputs(read.bytes(INPUTS)?.unwrap_or_default())?,
        pages: [(0, first)].into(),
        blocks: codec::decode_blocks(read.bytes(BLOCKS)?.unwrap_or_default())?,
        unmined_since: read.height(UNMINED_SINCE)?,
        delete_at: read.height(DELETE_AT)?,
        preserve_until: read.height(PRESERVE_UNTIL)?,
        coinbase: read.flag(COINBASE)?,
        conflicting: read.flag(CONFLICTING)?,
        spending: read.flag(SPENDING)?,
        external: read.external()?,
        cut: cut_at.is_some(),
    };
    let rest = read.rest()?;
    Ok(Main { row, held, tally, rest, cut_at, stored })
}

/// Reads a page of spenders and its holds.
pub(super) fn decode_page(
    fields: &Fields,
    outputs: u32,
    page: u32,
) -> Result<(Page, Held), UtxoError> {
    let read = Reader(fields);
    let bytes = read.bytes(SPENDERS)?.unwrap_or_default();
    Ok((Page::decode(bytes.to_vec(), outputs, page)?, Held::decode(read.bytes(HOLDS)?)?))
}

/// The fields of a page of spenders.
pub(super) fn page_fields(page: &Page, held: Held) -> [(&'static str, Value); 2] {
    [(SPENDERS, Value::Blob(page.bytes().to_vec())), (HOLDS, held.value())]
}

/// The fields of a transaction's record that change in its life, as they are to be.
pub(super) fn state(
    row: &Row,
    held: Held,
    tally: &[Tally],
) -> Result<Vec<(&'static str, Value)>, UtxoError> {
    let height = |height: Option<u64>| -> Result<Value, UtxoError> {
        height.map_or(Ok(Value::Nil), |height| codec::stored(height).map(Value::Int))
    };
    let holds: u32 = tally.iter().map(|page| u32::from(page.held)).sum();
    let mut fields = vec![
        (HELD, Value::Int(i64::from(holds) + i64::from(held.count()))),
        (TALLY, encode_tally(tally)),
        (BLOCKS, Value::Blob(codec::encode_blocks(&row.blocks))),
        (MINED_AT, height(row.mined_at())?),
        (UNMINED_SINCE, height(row.unmined_since)?),
        (DELETE_AT, height(row.delete_at)?),
        (PRESERVE_UNTIL, height(row.preserve_until)?),
        (CONFLICTING, Value::Int(i64::from(row.conflicting))),
        (SPENDING, Value::Int(i64::from(row.spending))),
    ];
    let first = row.pages.get(&0).ok_or_else(|| UtxoError::damaged("spenders", "no first page"))?;
    fields.extend(page_fields(first, held));
    Ok(fields)
}

/// Those fields that are not stored so.
pub(super) fn changed(
    wanted: impl IntoIterator<Item = (&'static str, Value)>,
    stored: &Fields,
) -> Fields {
    let differs = |(bin, value): &(&str, Value)| stored.get(*bin).unwrap_or(&Value::Nil) != value;
    wanted.into_iter().filter(differs).map(|(bin, value)| (bin.into(), value)).collect()
}

/// Every field of a new record, and the parts that hold what would make it large.
pub(super) fn new(
    row: &Row,
    body: &[u8],
    held: Held,
    tally: &[Tally],
) -> Result<(Fields, Vec<Vec<u8>>), UtxoError> {
    let mut inputs = codec::encode_inputs(&row.inputs);
    let external = row.external.map_or(Value::Nil, |kind| match kind {
        FileKind::Tx => Value::Int(1),
        FileKind::Outputs => Value::Int(2),
    });
    let mut fields = state(row, held, tally)?;
    fields.extend([
        (TXID, Value::Blob(row.txid.0.to_vec())),
        (OUTPUTS, Value::Int(i64::from(row.outputs))),
        (COINBASE, Value::Int(i64::from(row.coinbase))),
        (EXTERNAL, external),
    ]);
    let mut parts = Vec::new();
    if inputs.len() + body.len() > INLINE {
        let input_bytes = i64::try_from(inputs.len()).unwrap_or(i64::MAX);
        inputs.extend_from_slice(body);
        parts.extend(inputs.chunks(PART).map(<[u8]>::to_vec));
        let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
        fields.extend([(PARTS, Value::Int(count)), (INPUT_BYTES, Value::Int(input_bytes))]);
    } else {
        fields.extend([(INPUTS, Value::Blob(inputs)), (BODY, Value::Blob(body.to_vec()))]);
    }
    Ok((changed(fields, &Fields::new()), parts))
}
