//! Texts that many jobs share, each kept once.

use crate::api::ids::{JobKey, QueueName};
use std::collections::BTreeSet;
use std::sync::Arc;

/// So many texts that nobody else may use any more are kept before they are looked for.
const LEAST: usize = 1024;

/// The texts in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    texts: BTreeSet<Arc<str>>,
    /// How many there may be before those that nobody uses are dropped.
    most: usize,
}

impl Names {
    /// The one copy of `text`.
    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        if self.texts.len() >= self.most.max(LEAST) {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.most = 2 * self.texts.len();
        }
        let text: Arc<str> = Arc::from(text);
        self.texts.insert(Arc::clone(&text));
        text
    }

    /// The same key, its namespace shared with its neighbours.
    pub(crate) fn share_key(&mut self, key: &JobKey) -> JobKey {
        let namespace = self.share(&key.namespace);
        if Arc::ptr_eq(&namespace, &key.namespace) {
            return key.clone();
        }
        JobKey::within(namespace, &key.name)
    }

    /// The same name, shared.
    pub(crate) fn share_queue(&mut self, queue: &QueueName) -> QueueName {
        QueueName::shared(self.share(queue.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_uses_any_more_is_dropped_and_the_rest_stays_shared() {
        let mut names = Names::default();
        let used: Vec<Arc<str>> = (0..LEAST / 2)
            .map(|index| names.share(&format!("used-{index}")))
            .collect();
        for index in 0..10 * LEAST {
            names.share(&format!("gone-{index}"));
        }
        assert!(names.texts.len() <= 2 * LEAST, "{}", names.texts.len());
        for text in &used {
            assert!(Arc::ptr_eq(text, &names.share(text)), "{text}");
        }
    }
}
