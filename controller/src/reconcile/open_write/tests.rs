use super::*;

const NOW: Time = Time(1_000_000);

fn at(version: &str) -> ResourceBinding {
    let mut binding = ResourceBinding::default();
    binding.metadata.resource_version = Some(version.to_owned());
    binding
}

#[test]
fn a_job_stays_busy_until_the_watch_shows_its_write() {
    let mut open = OpenWrite::default();
    assert!(!open.is_busy(&at("5"), NOW));
    open.begin(&at("5"));
    assert!(open.is_busy(&at("5"), NOW));
    // The watch may be faster than the answer.
    assert!(open.is_busy(&at("7"), NOW));
    open.written("7");
    assert!(open.is_busy(&at("6"), NOW));
    assert!(!open.is_busy(&at("7"), NOW));
    // Versions are numbers: 10 comes after 7.
    open.written("7");
    assert!(!open.is_busy(&at("10"), NOW));
}

#[test]
fn after_a_failure_a_job_backs_off() {
    let mut open = OpenWrite::default();
    open.begin(&at("5"));
    let until = open.failed(NOW);
    assert_eq!(until, NOW.after(RETRY_MS));
    assert!(open.is_busy(&at("9"), until.after(-1)));
    assert!(!open.is_busy(&at("9"), until));
}

#[test]
fn after_a_conflict_a_job_waits_for_the_next_version_for_a_limited_time() {
    let mut open = OpenWrite::default();
    open.begin(&at("5"));
    let until = open.conflicted(NOW);
    assert!(open.is_busy(&at("5"), NOW));
    assert!(!open.is_busy(&at("6"), NOW));
    open.begin(&at("6"));
    assert_eq!(open.conflicted(NOW), until);
    assert!(open.is_busy(&at("6"), until.after(-1)));
    assert!(!open.is_busy(&at("6"), until));
}

#[test]
fn preparation_belongs_to_one_attempt() {
    let mut open = OpenWrite::default();
    open.begin_preparing(Attempt(2));
    assert!(open.is_open() && open.is_preparing(Attempt(2)));
    assert!(!open.is_preparing(Attempt(1)));
    open.closed();
    assert!(!open.is_open());
}
