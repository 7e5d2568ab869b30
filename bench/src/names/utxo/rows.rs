//! The records that are pruned: rows as a store keeps them (`docs/format/utxo.md`), made without a
//! store, because ten million are wanted quickly.
//!
//! Transactions have two inputs and two outputs, and the 374 bytes that such a one has on Bitcoin with
//! signatures of the usual kind. They are in the order in which they came. Of the old ones four of
//! five are spent and due; the fifth has a coin left and stays. A transaction spends others that came
//! at most [`NEAR`] before it, so that a record is due a while after its neighbours, or before; and one
//! of four that go has a parent that stays and must be told. The young ones are not due yet.

/// Heights over which the due ones are spread.
pub const HEIGHTS: u64 = 288;
/// The height at which all of them are due, and no more than those.
pub const HEIGHT: u64 = 2 * HEIGHTS;
/// Of so many old records one stays.
const EVERY: u64 = 5;
/// How far a parent or a child is away, about.
const NEAR: u64 = 20_000;
/// Records that stay among so many: a child of each is as far away as its number says, stretched by
/// a step that has no divisor in common with them and undone by another.
const STAY: u64 = NEAR / EVERY;
const STEP: u64 = 1597;
const STEP_BACK: u64 = 2933;
/// Two inputs of 148 bytes, two outputs of 34, ten more.
const BODY: usize = 374;

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
    pub body: Vec<u8>,
}

/// Numbers that look like chance and are the same every time.
fn mixed(of: u64) -> u64 {
    let mut state = of.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5ec4;
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// Bytes like a hash's or a signature's.
fn noise(of: u64, bytes: &mut [u8]) {
    let mut state = mixed(of);
    for eight in bytes.chunks_mut(8) {
        state = mixed(state ^ of);
        let made = state.to_be_bytes();
        eight.iter_mut().zip(made).for_each(|(byte, made)| *byte = made);
    }
}

/// An id like a hash: far from its neighbours'.
pub fn txid(of: u64) -> [u8; 32] {
    let mut id = [0; 32];
    noise(of, &mut id);
    id
}

fn spender(spenders: &mut Vec<u8>, by: Option<(u64, u32)>) {
    let Some((by, input)) = by else { return spenders.extend([0; 37]) };
    spenders.push(1);
    spenders.extend(txid(by));
    spenders.extend(input.to_be_bytes());
}

impl Shape {
    /// Old records are these and those before.
    const fn old(self) -> u64 {
        self.due * EVERY / (EVERY - 1)
    }

    const fn is_due(self, n: u64) -> bool {
        n <= self.old() && !n.is_multiple_of(EVERY)
    }

    /// When it came.
    const fn height(self, n: u64) -> u64 {
        1 + (n - 1) * (HEIGHTS - 1) / (self.old() + NEAR)
    }

    /// A row by its number, from 1.
    pub fn row(self, n: u64) -> Row {
        let is_due = self.is_due(n);
        let near = |salt: u64| 1 + mixed(n ^ (salt << 56)) % NEAR;
        let mut spenders = Vec::with_capacity(74);
        let last = near(1).max(near(2));
        if is_due {
            spender(&mut spenders, Some((n + near(1), 0)));
            spender(&mut spenders, Some((n + near(2), 1)));
        } else {
            let child = child_of_what_stays(n).unwrap_or(n + near(1));
            spender(&mut spenders, Some((child, 1)));
            spender(&mut spenders, None);
        }
        let mut inputs = Vec::with_capacity(88);
        let second =
            parent_that_stays(n).map_or((n.saturating_sub(near(4)), 1), |parent| (parent, 0));
        for (parent, output) in [(n.saturating_sub(near(3)), 0_u32), second] {
            inputs.extend(txid(parent));
            inputs.extend(output.to_be_bytes());
            inputs.extend(parent.to_be_bytes());
        }
        let mut blocks = txid(self.height(n) ^ (1 << 60)).to_vec();
        blocks.extend(self.height(n).to_be_bytes());
        let mut body = vec![0; BODY];
        noise(n ^ (1 << 61), &mut body);
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Row {
            id: signed(n),
            txid: txid(n),
            spent: if is_due { 2 } else { 1 },
            mined_at: signed(self.height(n)),
            delete_at: is_due.then(|| signed(self.height(n + last) + HEIGHTS)),
            blocks,
            spenders,
            inputs,
            body,
        }
    }

    /// All of them.
    pub fn rows(self) -> impl Iterator<Item = Row> {
        (1..=self.records).map(move |n| self.row(n))
    }
}

/// The parent of a record that has one that stays: every fifth has, those right after one that stays.
fn parent_that_stays(of: u64) -> Option<u64> {
    let (window, at) = (of / NEAR, of % NEAR);
    let nth = (at % EVERY == 1).then_some(at / EVERY)?;
    let parent = window.checked_sub(1)? * NEAR + nth * STEP % STAY * EVERY;
    (parent > 0).then_some(parent)
}

/// Whose parent it is.
fn child_of_what_stays(of: u64) -> Option<u64> {
    let (window, at) = (of / NEAR, of % NEAR);
    let nth = at.is_multiple_of(EVERY).then_some(at / EVERY)?;
    Some((window + 1) * NEAR + nth * STEP_BACK % STAY * EVERY + 1)
}
