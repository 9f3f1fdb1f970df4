#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

#[test]
fn what_is_deleted_is_not_known_any_more() {
    let (index, queues) = (PublishedIndex::default(), QueueIndex::default());
    queues.policy(Delta::Listed);
    let outlook = || index.outlook("q", "team", &queues);
    assert_eq!(outlook(), QueueOutlook::default());
    let shown = json!({
        "metadata": {"name": "q", "namespace": "team"}, "spec": {}, "status": {"queuePending": 2},
    });
    let queue: Queue = serde_json::from_value(json!({"metadata": {"name": "q"}})).unwrap();
    let key = |namespace: Option<&str>| ObjectKey {
        namespace: namespace.map(str::to_owned),
        name: "q".to_owned(),
    };
    index.queue(Delta::Upserted(queue));
    index.queue(Delta::Listed);
    index.of_namespace(Delta::Upserted(serde_json::from_value(shown).unwrap()));
    assert_eq!((outlook().is_missing, outlook().pending), (false, Some(2)));
    index.of_namespace(Delta::Gone(key(Some("team"))));
    index.queue(Delta::Gone(key(None)));
    assert_eq!((outlook().is_missing, outlook().pending), (true, None));
}
