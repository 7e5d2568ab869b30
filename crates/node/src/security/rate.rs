//! So many requests a second of one address: a bucket each, for a bounded number of addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use parking_lot::Mutex;

/// Addresses that are remembered at most.
const MOST: usize = 16_384;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// The buckets of all addresses.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: u32,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

impl Rates {
    /// 0 means no limit.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, buckets: Mutex::default() }
    }

    /// Whether an address may ask once more now.
    pub(crate) fn allow(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(peer) if self.per_second > 0 => self.allow_at(peer, Instant::now()),
            _ => true,
        }
    }

    fn allow_at(&self, peer: IpAddr, now: Instant) -> bool {
        let rate = f64::from(self.per_second);
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MOST && !buckets.contains_key(&peer) {
            // A full second refills a bucket, so an older one says nothing any more.
            buckets.retain(|_, bucket| now.duration_since(bucket.at).as_secs() < 1);
            if buckets.len() >= MOST {
                return false;
            }
        }
        let bucket = buckets.entry(peer).or_insert(Bucket { left: rate, at: now });
        let passed = now.duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * rate).min(rate);
        bucket.at = now;
        let allowed = bucket.left >= 1.0;
        if allowed {
            bucket.left -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_gets_its_rate_and_no_more_and_others_do_not_pay_for_it() {
        let rates = Rates::new(3);
        let [a, b] = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
        let now = Instant::now();
        let allowed = |peer, at| (0..10).filter(|_| rates.allow_at(peer, at)).count();
        assert_eq!(allowed(a, now), 3);
        assert_eq!(allowed(b, now), 3);
        assert_eq!(allowed(a, now + Duration::from_millis(700)), 2);
        assert!((0..100).all(|_| Rates::new(0).allow(Some(a))));
    }
}
