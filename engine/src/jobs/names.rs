//! Interned texts that many jobs share.

use facts::{JobKey, QueueName};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The fewest texts at which unused ones are searched for.
const LEAST: usize = 1024;

/// The interned texts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    texts: BTreeSet<Arc<str>>,
    /// The number of texts at which unused ones are dropped.
    most: usize,
}

impl Names {
    /// The shared copy of `text`.
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

    /// The same key, with a shared namespace.
    pub(crate) fn share_key(&mut self, key: &JobKey) -> JobKey {
        let namespace = self.share(&key.namespace);
        if Arc::ptr_eq(&namespace, &key.namespace) {
            return key.clone();
        }
        JobKey::within(namespace, &key.name)
    }

    /// The same name, with a shared text.
    pub(crate) fn share_queue(&mut self, queue: &QueueName) -> QueueName {
        QueueName::shared(self.share(queue.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_texts_are_dropped_and_used_ones_stay_shared() {
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
