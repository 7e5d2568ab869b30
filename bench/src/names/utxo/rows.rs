//! The records that are pruned: rows as a store keeps them (`docs/format/utxo.md`), made without a
//! store, because ten million are wanted quickly.
//!
//! Transactions have two inputs and two outputs. Those that are due are the oldest; the parents of most
//! are older still and go before them, and every fifth has a parent that stays and must be told.

/// Heights over which the due ones are spread.
pub const HEIGHTS: u64 = 288;
/// Those with a parent that stays.
const EVERY: u64 = 5;

/// How many rows.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// All of them.
    pub records: u64,
    /// Those that are due.
    pub due: u64,
}

/// One row.
pub struct Row {
    pub id: i64,
    pub txid: [u8; 32],
    pub spent: i32,
    pub mined_at: i64,
    pub delete_at: Option<i64>,
    pub blocks: Vec<u8>,
    pub spenders: Vec<u8>,
    pub inputs: Vec<u8>,
}

/// An id like a hash: far from its neighbours'.
fn txid(of: u64) -> [u8; 32] {
    let mut id = [0; 32];
    let mut state = of.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5ec4;
    for eight in id.chunks_mut(8) {
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
        eight.copy_from_slice(&state.to_be_bytes());
        state = state.wrapping_add(of);
    }
    id
}

fn spender(spenders: &mut Vec<u8>, by: Option<(u64, u32)>) {
    let Some((by, input)) = by else { return spenders.extend([0; 37]) };
    spenders.push(1);
    spenders.extend(txid(by));
    spenders.extend(input.to_be_bytes());
}

impl Shape {
    /// The parent of a due record that stays, if it has one.
    fn survivor(self, of: u64) -> Option<u64> {
        let parent = self.due + 1 + of / EVERY;
        (of.is_multiple_of(EVERY) && parent <= self.records).then_some(parent)
    }

    /// A row by its number, from 1.
    pub fn row(self, n: u64) -> Row {
        let due = n <= self.due;
        let mut spenders = Vec::with_capacity(74);
        if due {
            spender(&mut spenders, Some((n + 1, 0)));
            spender(&mut spenders, Some((n + 9, 1)));
        } else {
            let child = (n - self.due - 1) * EVERY;
            let told = child > 0 && child <= self.due;
            spender(&mut spenders, Some(if told { (child, 1) } else { (n + 1, 0) }));
            spender(&mut spenders, None);
        }
        let second = self.survivor(n).filter(|_| due).unwrap_or_else(|| n.saturating_sub(9));
        let mut inputs = Vec::with_capacity(88);
        for (parent, output) in [(n.saturating_sub(1), 0_u32), (second, u32::from(second < n))] {
            inputs.extend(txid(parent));
            inputs.extend(output.to_be_bytes());
            inputs.extend(parent.to_be_bytes());
        }
        let height = 1 + (n - 1) * HEIGHTS / self.due.max(1);
        let mut blocks = txid(height ^ (1 << 60)).to_vec();
        blocks.extend(height.to_be_bytes());
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Row {
            id: signed(n),
            txid: txid(n),
            spent: if due { 2 } else { 1 },
            mined_at: signed(height),
            delete_at: due.then(|| signed(height + HEIGHTS)),
            blocks,
            spenders,
            inputs,
        }
    }
}

/// The height at which all of them are due, and no more than those.
pub const HEIGHT: u64 = 2 * HEIGHTS;
