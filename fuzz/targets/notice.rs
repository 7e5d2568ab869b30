//! A notice in either form: what is read is written the same again, and what is signed is what was
//! sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::notice::{
    DOMAIN_V1, MAX_LOCATORS, MAX_NOTICE_LEN, MAX_SIGNER_LEN, Notice, NoticeBody, Statement,
};
use secateur_fuzz::{MESSAGE, within};

fuzz_target!(|input: &[u8]| {
    let limit = 8 * input.len() + MESSAGE;
    let Ok(notice) = within(limit, || Notice::decode(input)) else { return };
    assert!(input.len() <= MAX_NOTICE_LEN);
    assert_eq!(notice.encode().expect("it was read"), input);
    assert!(notice.says(&notice.statement()));
    let claim = notice.claim();
    assert!((1..=MAX_LOCATORS).contains(&claim.locators.len()));
    assert!((1..=MAX_SIGNER_LEN).contains(&claim.archived_by.len()));
    claim.locators.iter().for_each(|locator| locator.check().expect("it was checked"));
    if let Statement::V1(body) = notice.statement() {
        let signed = &input[1..input.len() - 72];
        assert_eq!(notice.preimage(), [DOMAIN_V1, signed].concat());
        assert_eq!(body.encode().expect("it was read"), signed);
        assert_eq!(NoticeBody::decode(signed).expect("it was written just now"), body);
    }
});
