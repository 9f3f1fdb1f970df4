use super::*;

#[test]
fn a_record_not_written_by_muster_counts_as_changed() {
    let mut guard = RecordGuard {
        written: Some(digest(Some("ours"))),
        ..RecordGuard::default()
    };
    guard.shows(None, Some("ours"));
    assert!(!guard.is_replaced());
    guard.shows(Some("ours"), Some("forged"));
    guard.shows(Some("forged"), None);
    let replaced = guard.replaced.clone().map(|replaced| replaced.record);
    assert_eq!(replaced, Some(Some("ours".to_owned())), "the last of ours");
    guard.shows(None, Some("ours"));
    assert!(!guard.is_replaced());
}

#[test]
fn an_earlier_record_is_not_accepted_again() {
    let mut guard = RecordGuard {
        written: Some(digest(Some("second"))),
        ..RecordGuard::default()
    };
    guard.shows(Some("first"), Some("second"));
    guard.shows(Some("second"), Some("first"));
    assert!(guard.is_replaced());
}

#[test]
fn a_record_that_was_never_written_is_forged() {
    let mut guard = RecordGuard::default();
    guard.shows(None, Some("forged"));
    assert!(guard.is_replaced());
    guard.shows(Some("forged"), None);
    assert!(!guard.is_replaced());
}
