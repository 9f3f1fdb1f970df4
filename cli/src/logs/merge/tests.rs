#![allow(clippy::unwrap_used)]
use super::*;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Sends lines of these seconds and texts.
fn send(feeds: &UnboundedSender<Feed>, id: SourceId, lines: &[(&str, &str)]) {
    let mut block = LineBlock {
        bytes: Vec::new(),
        lines: Vec::new(),
        permit: None,
    };
    for (second, text) in lines {
        let start = block.bytes.len();
        block
            .bytes
            .extend(format!("2026-11-30T10:00:{second}Z {text}").bytes());
        let whole = start..block.bytes.len();
        block
            .lines
            .push(LineRange::read(&block.bytes, whole, Timestamp::MIN));
    }
    feeds.send(Feed::Lines(id, block)).ok().unwrap();
}

async fn next(merge: &mut Merge) -> String {
    loop {
        match merge.next().await {
            Some(Merged::Line(id, line)) => {
                return format!("{id} {}", String::from_utf8_lossy(line));
            }
            Some(Merged::Note(text)) => return text,
            Some(Merged::Idle) => {}
            None => return "end".to_owned(),
        }
    }
}

async fn all(merge: &mut Merge) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match next(merge).await.as_str() {
            "end" => return lines,
            line => lines.push(line.to_owned()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lines_are_merged_by_time_and_keep_their_order_within_a_container() {
    let (feeds, receiver) = unbounded_channel();
    let mut merge = Merge::new(receiver, None, false);
    for id in 0..3 {
        feeds.send(Feed::Opened(id)).ok().unwrap();
    }
    send(
        &feeds,
        0,
        &[
            ("01", "a"),
            ("04", "b"),
            ("03", "out of order"),
            ("09", "c"),
        ],
    );
    send(&feeds, 2, &[("02", "x")]);
    send(&feeds, 1, &[("05", "y")]);
    send(&feeds, 2, &[("06", "z")]);
    feeds
        .send(Feed::Note(1, "started again".to_owned()))
        .ok()
        .unwrap();
    for id in 0..3 {
        feeds.send(Feed::Ended(id)).ok().unwrap();
    }
    drop(feeds);
    let want = [
        "0 a",
        "2 x",
        "0 b",
        "0 out of order",
        "1 y",
        "started again",
        "2 z",
        "0 c",
    ];
    assert_eq!(all(&mut merge).await, want);
}

#[tokio::test(start_paused = true)]
async fn a_line_waits_for_earlier_ones_of_others_and_not_for_long() {
    let (feeds, receiver) = unbounded_channel();
    let mut merge = Merge::new(receiver, Some(HOLD), true);
    for id in 0..2 {
        feeds.send(Feed::Opened(id)).ok().unwrap();
    }
    send(&feeds, 0, &[("02", "later")]);
    let begun = Instant::now();
    let other = async {
        tokio::time::sleep(HOLD / 2).await;
        send(&feeds, 1, &[("01", "earlier")]);
    };
    let (first, ()) = tokio::join!(next(&mut merge), other);
    assert_eq!(first, "1 2026-11-30T10:00:01Z earlier");
    assert_eq!(next(&mut merge).await, "0 2026-11-30T10:00:02Z later");
    assert_eq!(begun.elapsed(), HOLD, "the other one is silent from now on");
    // Alone it waits for nobody.
    feeds.send(Feed::Ended(1)).ok().unwrap();
    send(&feeds, 0, &[("03", "alone")]);
    assert_eq!(next(&mut merge).await, "0 2026-11-30T10:00:03Z alone");
    assert_eq!(begun.elapsed(), HOLD);
    drop(feeds);
    assert_eq!(next(&mut merge).await, "end");
}

#[tokio::test(start_paused = true)]
async fn what_was_printed_is_flushed_before_the_next_wait() {
    let (feeds, receiver) = unbounded_channel();
    let mut merge = Merge::new(receiver, Some(HOLD), false);
    feeds.send(Feed::Opened(0)).ok().unwrap();
    send(&feeds, 0, &[("01", "a")]);
    assert_eq!(merge.next().await, Some(Merged::Line(0, b"a")));
    assert_eq!(merge.next().await, Some(Merged::Idle));
}
