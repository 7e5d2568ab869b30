//! What peers may ask of a node: so much in a second from one address, so much at a time in all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What peers may ask of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages in a second from one address; 16 heights that are asked about count as one.
    pub per_second: u32,
    /// So many at once, after it was silent for a while.
    pub burst: u32,
    /// Calls that are answered at the same time, from all addresses together.
    pub calls: usize,
    /// Connections at the same time.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_second: 2_000, burst: 8_192, calls: 128, connections: 256 }
    }
}

/// Addresses that are remembered. Those that were silent for long are forgotten; while there are too
/// many all the same, those that are not known share one place.
const MOST: usize = 4_096;
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A token bucket for each address.
#[derive(Debug)]
pub(super) struct Gate {
    limits: Limits,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
    calls: Arc<Semaphore>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Self {
        let calls = Arc::new(Semaphore::new(limits.calls.max(1)));
        Self { limits, buckets: Mutex::default(), calls }
    }

    /// A place for a call that costs so much, or none.
    pub(super) fn enter(&self, from: Option<IpAddr>, cost: usize) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.calls).try_acquire_owned().ok()?;
        match from {
            Some(address) if !self.pay(address, cost, Instant::now()) => None,
            _ => Some(place),
        }
    }

    fn pay(&self, address: IpAddr, cost: usize, now: Instant) -> bool {
        let burst = f64::from(self.limits.burst.max(1));
        let rate = f64::from(self.limits.per_second);
        let cost = f64::from(u32::try_from(cost).unwrap_or(u32::MAX)).min(burst);
        let full = |bucket: &Bucket| {
            (bucket.left + rate * now.duration_since(bucket.at).as_secs_f64()).min(burst)
        };
        let mut address = network(address);
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MOST && !buckets.contains_key(&address) {
            // One that is full again is like one that was never seen.
            buckets.retain(|_, bucket| full(bucket) < burst);
            if buckets.len() >= MOST {
                address = OTHERS;
            }
        }
        let bucket = buckets.entry(address).or_insert(Bucket { left: burst, at: now });
        (bucket.left, bucket.at) = (full(bucket), now);
        let enough = bucket.left >= cost;
        if enough {
            bucket.left -= cost;
        }
        enough
    }
}

/// Who has one address of IPv6 has as many as it likes of the same 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_that_asks_too_much_waits_and_others_do_not() {
        let limits = Limits { per_second: 10, burst: 20, ..Limits::default() };
        let gate = Gate::new(limits);
        let [a, b] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let now = Instant::now();
        assert!(gate.pay(a, 20, now));
        assert!(!gate.pay(a, 1, now));
        assert!(gate.pay(b, 1, now));
        let later = now + Duration::from_millis(500);
        assert!(gate.pay(a, 5, later));
        assert!(!gate.pay(a, 1, later));
        let six = |low: u128| IpAddr::V6(Ipv6Addr::from_bits((0x2001 << 112) | low));
        assert!(gate.pay(six(1), 20, now));
        assert!(!gate.pay(six(2), 1, now), "the same network");
        assert!(gate.pay(six(1 << 64), 1, now));
        // However long it was silent, and however much it asks at once.
        let much_later = now + Duration::from_secs(1_000);
        assert!(gate.pay(a, 1_000_000, much_later));
        assert!(!gate.pay(a, 1, much_later));
    }

    #[test]
    fn addresses_are_bounded_and_calls_too() {
        let gate = Gate::new(Limits { per_second: 1, burst: 2, calls: 2, ..Limits::default() });
        let now = Instant::now();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 1..=u32::try_from(MOST).unwrap() {
            assert!(gate.pay(address(n), 1, now));
        }
        // Those that come too late share what one has; those that are known do not.
        assert!(gate.pay(address(u32::MAX), 2, now));
        assert!(!gate.pay(address(u32::MAX - 1), 1, now));
        assert!(gate.pay(address(1), 1, now));
        assert_eq!(gate.buckets.lock().len(), MOST + 1);
        assert!(gate.pay(address(u32::MAX - 1), 1, now + Duration::from_secs(5)));
        assert_eq!(gate.buckets.lock().len(), 1);
        let held = [gate.enter(None, 1), gate.enter(None, 1)];
        assert!(held.iter().all(Option::is_some));
        assert!(gate.enter(None, 1).is_none());
        drop(held);
        assert!(gate.enter(None, 1).is_some());
    }
}
