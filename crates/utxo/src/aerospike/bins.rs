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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Input;
    use crate::types::{BlockId, BlockRef, OutPoint};

    fn row(outputs: u32, inputs: u32) -> Row {
        let spends = |n| OutPoint { txid: TxId([2; 32]), n };
        Row {
            id: 0,
            txid: TxId([9; 32]),
            outputs,
            spent: 0,
            inputs: (0..inputs).map(|n| Input { spends: spends(n), parent: 0 }).collect(),
            pages: (0..pages(outputs)).map(|page| (page, Page::unspent(outputs, page))).collect(),
            blocks: vec![BlockRef { id: BlockId([4; 32]), height: 70 }],
            unmined_since: None,
            delete_at: Some(80),
            preserve_until: Some(0),
            coinbase: false,
            conflicting: true,
            spending: true,
            external: Some(FileKind::Tx),
            cut: false,
        }
    }

    fn stored(fields: Fields) -> Stored {
        Stored { fields, generation: 3 }
    }

    #[test]
    fn a_record_reads_back_and_nothing_of_it_is_changed() {
        let mut row = row(600, 2);
        let slot = Slot::Spent { by: TxId([5; 32]), input: 1 };
        row.pages.get_mut(&0).unwrap().set(255, slot);
        let mut held = Held::default();
        held.set(255, true);
        let tally = [Tally { spent: 256, held: 7 }, Tally { spent: 1, held: 0 }];
        let (fields, parts) = new(&row, b"bytes", held, &tally).unwrap();
        assert!(parts.is_empty() && fields.values().all(|value| *value != Value::Nil));
        assert_eq!(fields.get(HELD), Some(&Value::Int(8)));
        let main = decode(stored(fields.clone())).unwrap();
        assert_eq!((main.row.spent, main.row.inputs.clone()), (258, row.inputs.clone()));
        assert_eq!((main.row.delete_at, main.row.preserve_until), (Some(80), Some(0)));
        assert_eq!((main.row.external, main.row.blocks.len()), (Some(FileKind::Tx), 1));
        assert!(main.row.spending && main.row.conflicting && !main.row.coinbase && !main.row.cut);
        assert_eq!(
            (main.held, main.tally.as_slice(), main.rest),
            (held, &tally[..], Rest::default())
        );
        let same = state(&main.row, main.held, &main.tally).unwrap();
        assert!(changed(same, &fields).is_empty());
        // What is taken away is said so.
        let bare = Row { preserve_until: None, ..main.row };
        let less = changed(state(&bare, Held::default(), &tally).unwrap(), &fields);
        let gone: Vec<_> = less.iter().map(|(bin, value)| (bin.as_str(), value.clone())).collect();
        let held = (HELD, Value::Int(7));
        assert_eq!(gone, [held, (PRESERVE_UNTIL, Value::Nil), (HOLDS, Value::Nil)]);
    }

    #[test]
    fn long_transactions_are_in_parts() {
        let row = row(1, 20_000);
        let body = vec![7; 300_000];
        let (fields, parts) = new(&row, &body, Held::default(), &[]).unwrap();
        assert!(!fields.contains_key(INPUTS) && !fields.contains_key(BODY));
        assert!(parts.iter().all(|part| part.len() <= PART) && parts.len() == 3);
        let rest = decode(stored(fields)).unwrap().rest;
        assert_eq!((rest.parts, rest.input_parts()), (3, 2));
        let all = parts.concat();
        assert_eq!(codec::decode_inputs(&all[..rest.input_bytes]).unwrap(), row.inputs);
        assert_eq!(all[rest.input_bytes..], body);
    }

    #[test]
    fn a_hold_needs_a_spender_that_is_here() {
        let mut page = Page::unspent(256, 0);
        let by = TxId([5; 32]);
        page.set(0, Slot::Spent { by, input: 0 });
        page.set(9, Slot::Pruned { by, input: 0 });
        let mut held = Held::default();
        for at in [0, 9, 17, 255, 256, u32::MAX] {
            held.set(at, true);
        }
        assert_eq!((held.count(), held.get(255), held.get(256)), (4, true, false));
        held.trim(&page);
        assert_eq!((held.count(), held.get(0), held.get(9)), (1, true, false));
        assert_eq!(spent(&page), 2);
        held.set(0, false);
        assert_eq!((held.count(), held.value()), (0, Value::Nil));
    }

    #[test]
    fn what_is_damaged_is_told() {
        let (fields, _) = new(&row(300, 1), b"", Held::default(), &[Tally::default()]).unwrap();
        decode(stored(fields.clone())).unwrap();
        let blob = |bytes: usize| Value::Blob(vec![0; bytes]);
        for (bin, value) in [
            (TXID, blob(31)),
            (TXID, Value::Nil),
            (OUTPUTS, Value::Int(-1)),
            (OUTPUTS, Value::Int(1 << 21)),
            (OUTPUTS, Value::String("300".into())),
            (SPENDERS, blob(1)),
            (HOLDS, blob(31)),
            (TALLY, blob(8)),
            (TALLY, blob(3)),
            (BLOCKS, blob(41)),
            (INPUTS, blob(45)),
            (DELETE_AT, Value::Int(-1)),
            (DELETE_AT, blob(8)),
            (EXTERNAL, Value::Int(3)),
            (PARTS, Value::Int(-1)),
        ] {
            let mut damaged = fields.clone();
            damaged.insert(bin.into(), value.clone());
            let told = decode(stored(damaged)).map(drop).unwrap_err();
            assert!(matches!(told, UtxoError::Damaged { .. }), "{bin}: {value:?}");
        }
    }
}
