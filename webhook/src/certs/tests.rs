//! The plan over virtual time.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn day(number: i64) -> Timestamp {
    after(
        Timestamp::UNIX_EPOCH,
        SignedDuration::from_hours(24 * number),
    )
}

/// Carries out everything that is due at `now`; returns the actions and the resulting keyring.
fn settle(
    now: Timestamp,
    mut keyring: Option<Keyring>,
    names: &BTreeSet<String>,
) -> (Vec<Action>, Keyring) {
    let lifetimes = Lifetimes::default();
    let mut done = Vec::new();
    loop {
        let action = plan(now, keyring.as_ref(), names, &lifetimes);
        match carry_out(&action, keyring.as_ref(), now, names, &lifetimes).unwrap() {
            Some(next) => keyring = Some(next),
            None => return (done, keyring.unwrap()),
        }
        done.push(action);
        assert!(done.len() < 5, "does not settle: {done:?}");
    }
}

fn word(action: &Action) -> &'static str {
    match action {
        Action::Keep { .. } => "keep",
        Action::Found => "found",
        Action::AddAuthority => "add",
        Action::Issue { .. } => "issue",
        Action::Drop { .. } => "drop",
    }
}

#[test]
fn years_of_rotation() {
    let names = names(&["127.0.0.1"]);
    let (mut log, mut keyring) = (String::new(), None);
    let mut now = day(0);
    while now < day(5 * 365) {
        let before: Option<Keyring> = keyring.clone();
        let (done, after_it) = settle(now, keyring, &names);
        check(now, before.as_ref(), &after_it);
        for action in done.iter().filter(|_| now < day(600)) {
            let days = now.duration_since(day(0)).as_hours() / 24;
            let trusted = after_it.authorities.len();
            log += &format!("day {days}: {}, {trusted} trusted\n", word(action));
        }
        let lifetimes = Lifetimes::default();
        let Action::Keep { until } = plan(now, Some(&after_it), &names, &lifetimes) else {
            panic!("not settled");
        };
        assert!(until > now);
        (now, keyring) = (until, Some(after_it));
    }
    insta::assert_snapshot!(log, @"
    day 0: found, 1 trusted
    day 60: issue, 1 trusted
    day 120: issue, 1 trusted
    day 180: issue, 1 trusted
    day 240: issue, 1 trusted
    day 243: add, 2 trusted
    day 243: issue, 2 trusted
    day 303: issue, 2 trusted
    day 330: drop, 1 trusted
    day 363: issue, 1 trusted
    day 423: issue, 1 trusted
    day 483: issue, 1 trusted
    day 486: add, 2 trusted
    day 486: issue, 2 trusted
    day 546: issue, 2 trusted
    day 573: drop, 1 trusted
    ");
}

/// What must hold at every moment.
fn check(now: Timestamp, before: Option<&Keyring>, after: &Keyring) {
    assert!(now < after.serving.until, "the certificate has expired");
    let signing = after.signing().unwrap();
    assert!(after.serving.until <= signing.until);
    // A server with the earlier certificate is still trusted, and a client with the earlier bundle trusts the
    // present certificate, unless its CA is the first one.
    if let Some(before) = before {
        assert!(
            after
                .authorities
                .iter()
                .any(|a| a.id == before.serving.issuer)
        );
        assert!(
            before
                .authorities
                .iter()
                .any(|a| a.id == after.serving.issuer)
        );
    }
    let keys = after.authorities.iter().filter(|a| a.key.is_some()).count();
    assert!(keys <= 2);
}

#[test]
fn a_new_authority_waits_before_it_signs() {
    let names = names(&["a"]);
    let (_, founded) = settle(day(0), None, &names);
    let first = founded.serving.issuer.clone();
    let (done, added) = settle(day(300), Some(founded), &names);
    assert_eq!(done.iter().map(word).collect::<Vec<_>>(), ["issue", "add"]);
    assert_eq!(added.serving.issuer, first);
    assert_eq!(added.authorities.len(), 2);

    let soon = after(day(300), SignedDuration::from_mins(9));
    assert_eq!(settle(soon, Some(added.clone()), &names).0, []);
    let later = after(day(300), SignedDuration::from_mins(10));
    let (_, switched) = settle(later, Some(added), &names);
    assert_ne!(switched.serving.issuer, first);
    assert_eq!(switched.authorities[0].key, None);
    assert_eq!(switched.authorities.len(), 2);
}

#[test]
fn a_new_name_is_added_at_once() {
    let (_, keyring) = settle(day(0), None, &names(&["a"]));
    let (done, keyring) = settle(day(1), Some(keyring), &names(&["b"]));
    assert_eq!(done.len(), 1);
    assert_eq!(keyring.serving.names, names(&["a", "b"]));
    // The other replica accepts it.
    assert_eq!(settle(day(1), Some(keyring), &names(&["a"])).0, []);
}

#[test]
fn after_a_long_absence_it_starts_over() {
    let names = names(&["a"]);
    let (_, keyring) = settle(day(0), None, &names);
    let (done, keyring) = settle(day(400), Some(keyring), &names);
    assert_eq!(done, [Action::Found]);
    assert_eq!(keyring.authorities.len(), 1);
    // After a shorter absence the CA still signs, at once.
    let (done, _) = settle(day(400 + 120), Some(keyring), &names);
    assert!(matches!(done[0], Action::Issue { .. }));
}
