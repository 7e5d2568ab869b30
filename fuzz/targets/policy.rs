//! The prune policy: as a JSON document, and as `key=value` lines. Whatever is accepted reads
//! back, and its water marks are in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{PrunePolicy, Ratio, Trigger, WaterMarks};
use secateur_fuzz::{MESSAGE, within};

/// Lines that are looked at.
const MAX_LINES: usize = 32;

fuzz_target!(|input: &[u8]| {
    let limit = 16 * input.len() + MESSAGE;
    if let Ok(policy) = within(limit, || serde_json::from_slice::<PrunePolicy>(input)) {
        check(&policy);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut policy = PrunePolicy::default();
    for line in text.lines().take(MAX_LINES) {
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let before = policy.clone();
        if within(limit, || policy.set(key, value)).is_err() {
            assert_eq!(policy, before, "a refused value changed something");
        }
        if let Ok(ratio) = value.parse::<Ratio>() {
            assert_eq!(ratio.to_string().parse(), Ok(ratio));
        }
        if let Ok(trigger) = value.parse::<Trigger>() {
            assert_eq!(trigger.to_string().parse(), Ok(trigger));
        }
    }
    check(&policy);
});

fn check(policy: &PrunePolicy) {
    let json = serde_json::to_vec(policy).expect("a policy has only plain fields");
    let again: PrunePolicy = serde_json::from_slice(&json).expect("it was written just now");
    assert_eq!(&again, policy);
    let fine = policy.check().is_ok();
    if let Some(WaterMarks { low, high, hard, target }) = policy.water_marks() {
        assert!(low <= target && high <= target && hard <= target);
        assert!(!fine || (low < high && high < hard));
    }
    assert!(!fine || (policy.max_ops_per_tick > 0 && policy.min_keep_blocks > 0));
    assert!(policy.retain_seconds().is_none() == (policy.retain_days == 0));
}
