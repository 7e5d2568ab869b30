//! The price of blob gas, which no block states: it follows from the header's excess blob gas and
//! from a number that forks change.

use alloy_consensus::Header;
use alloy_eips::eip4844::{BLOB_TX_MIN_BLOB_GASPRICE, fake_exponential};
use alloy_eips::eip7840::BlobParams;

/// From which time on which update fraction holds, oldest first.
type Schedule = [(u64, u128); 4];

const fn schedule(cancun: u64, prague: u64, bpo1: u64, bpo2: u64) -> Schedule {
    [
        (cancun, BlobParams::cancun().update_fraction),
        (prague, BlobParams::prague().update_fraction),
        (bpo1, BlobParams::bpo1().update_fraction),
        (bpo2, BlobParams::bpo2().update_fraction),
    ]
}

/// The chains whose forks are known, by their number.
const SCHEDULES: [(u64, Schedule); 4] = [
    // Ethereum.
    (1, schedule(1_710_338_135, 1_746_612_311, 1_765_290_071, 1_767_747_671)),
    // Sepolia.
    (11_155_111, schedule(1_706_655_072, 1_741_159_776, 1_761_017_184, 1_761_607_008)),
    // Holesky.
    (17_000, schedule(1_707_305_664, 1_740_434_112, 1_759_800_000, 1_760_389_824)),
    // Hoodi.
    (560_048, schedule(0, 1_742_999_832, 1_762_365_720, 1_762_955_544)),
];

/// What one blob gas cost in a block; None before there were blobs.
pub(super) fn blob_gas_price(
    chain_id: u64,
    configured: Option<u64>,
    header: &Header,
) -> Option<u128> {
    let excess = header.excess_blob_gas?;
    let fraction = update_fraction(chain_id, configured, header).max(1);
    Some(fake_exponential(BLOB_TX_MIN_BLOB_GASPRICE, excess.into(), fraction))
}

/// A known fork's fraction, else the configured one, else what the header looks like.
fn update_fraction(chain_id: u64, configured: Option<u64>, header: &Header) -> u128 {
    let known = SCHEDULES.iter().find(|(id, _)| *id == chain_id).and_then(|(_, schedule)| {
        schedule.iter().rev().find(|(since, _)| header.timestamp >= *since)
    });
    match (known, configured) {
        (Some((_, fraction)), _) => *fraction,
        (None, Some(fraction)) => fraction.into(),
        (None, None) if header.requests_hash.is_some() => BlobParams::prague().update_fraction,
        (None, None) => BlobParams::cancun().update_fraction,
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;

    fn header(timestamp: u64, excess: u64) -> Header {
        Header { timestamp, excess_blob_gas: Some(excess), ..Header::default() }
    }

    #[test]
    fn a_known_chain_changes_its_fraction_at_its_forks() {
        let fraction = |at| update_fraction(1, Some(7), &header(at, 0));
        assert_eq!(fraction(1_746_612_310), 3_338_477);
        assert_eq!(fraction(1_746_612_311), 5_007_716);
        assert_eq!(fraction(1_765_290_070), 5_007_716);
        assert_eq!(fraction(1_765_290_071), 8_346_193);
        assert_eq!(fraction(1_767_747_671), 11_684_671);
        assert_eq!(update_fraction(560_048, None, &header(1, 0)), 3_338_477);
        for (_, schedule) in SCHEDULES {
            assert!(schedule.is_sorted_by_key(|(since, _)| *since));
        }
    }

    #[test]
    fn another_chain_goes_by_the_configuration_and_then_by_the_header() {
        let old = header(1_800_000_000, 0);
        let new = Header { requests_hash: Some(B256::ZERO), ..old.clone() };
        assert_eq!(update_fraction(31_337, Some(9), &new), 9);
        assert_eq!(update_fraction(31_337, None, &old), 3_338_477);
        assert_eq!(update_fraction(31_337, None, &new), 5_007_716);
    }

    #[test]
    fn the_price_grows_with_the_excess_and_never_runs_over() {
        let price = |excess| blob_gas_price(5, None, &header(0, excess)).unwrap();
        // By hand: e to the power of excess through fraction, rounded down as EIP-4844 does.
        assert_eq!(price(0), 1);
        assert_eq!(price(2_314_057), 1);
        assert_eq!(price(2_314_058), 2);
        assert_eq!(price(10 * 1024 * 1024), 23);
        assert_eq!(price(u64::MAX), u128::MAX);
        assert_eq!(blob_gas_price(5, Some(1), &header(0, u64::MAX)), Some(u128::MAX));
        assert_eq!(blob_gas_price(5, None, &Header::default()), None);
    }
}
