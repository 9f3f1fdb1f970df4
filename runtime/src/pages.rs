//! Lists in pages: no answer has more than [`PAGE`] objects, so that neither the API server nor this
//! process has to hold all of them in one.
//!
//! All pages show the same state of the server: that of the first page. Watches list in pages of their own
//! (`watch`), because they process each page as it comes.

use crate::client::{CallError, with_deadline};
use kube::api::{ListParams, ObjectList, PartialObjectMeta};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

/// Objects on a page; the same as kubectl's.
pub const PAGE: u32 = 500;

/// How often a list is started whose pages expire: the server keeps them for minutes.
const BEGINNINGS: u32 = 3;

/// Returns the objects that `params` selects. Each page has to come within `limit`.
///
/// # Errors
/// Returns an error if a page does not come, or pages expire three times before all are read.
pub async fn list<K>(
    api: &Api<K>,
    params: &ListParams,
    limit: Duration,
) -> Result<ObjectList<K>, CallError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let read = |params: ListParams| {
        let api = api.clone();
        #[expect(clippy::disallowed_methods, reason = "of one page")]
        async move {
            api.list(&params).await
        }
    };
    pages(params, limit, read).await
}

/// Does the same with the metadata alone.
///
/// # Errors
/// As [`list`].
pub async fn list_metadata<K>(
    api: &Api<K>,
    params: &ListParams,
    limit: Duration,
) -> Result<ObjectList<PartialObjectMeta<K>>, CallError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let read = |params: ListParams| {
        let api = api.clone();
        #[expect(clippy::disallowed_methods, reason = "of one page")]
        async move {
            api.list_metadata(&params).await
        }
    };
    pages(params, limit, read).await
}

async fn pages<T, F>(
    params: &ListParams,
    limit: Duration,
    read: impl Fn(ListParams) -> F,
) -> Result<ObjectList<T>, CallError>
where
    T: Clone,
    F: Future<Output = kube::Result<ObjectList<T>>>,
{
    let mut params = params.clone().limit(PAGE);
    let mut begun = 1;
    let mut before = Vec::new();
    loop {
        match with_deadline(read(params.clone()), limit).await {
            Ok(mut page) => {
                before.append(&mut page.items);
                let next = page.metadata.continue_.take();
                params.continue_token = next.filter(|token| !token.is_empty());
                if params.continue_token.is_none() {
                    page.metadata.remaining_item_count = None;
                    page.items = before;
                    return Ok(page);
                }
            }
            Err(error)
                if error.code() == Some(410)
                    && params.continue_token.is_some()
                    && begun < BEGINNINGS =>
            {
                begun += 1;
                before.clear();
                params.continue_token = None;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{FakeApi, Fault, Recorded};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use serde_json::json;
    use std::collections::BTreeSet;

    const LIMIT: Duration = Duration::from_secs(1);

    fn with_objects(count: usize) -> (FakeApi, Api<ConfigMap>) {
        let api = FakeApi::new();
        for number in 0..count {
            let path = format!("/api/v1/namespaces/a/configmaps/c{number:05}");
            api.put(&path, json!({}));
        }
        let maps = Api::all(api.client());
        (api, maps)
    }

    fn is_later(request: &Recorded) -> bool {
        request.query.contains_key("continue")
    }

    #[tokio::test(start_paused = true)]
    async fn all_objects_are_listed_in_pages_of_limited_size() {
        let (api, maps) = with_objects(1_201);
        let all = list(&maps, &ListParams::default(), LIMIT).await.unwrap();
        let names: BTreeSet<String> = all.iter().map(ResourceExt::name_any).collect();
        assert_eq!((all.items.len(), names.len()), (1_201, 1_201));
        assert_eq!(all.metadata.continue_, None);
        let metadata = list_metadata(&maps, &ListParams::default(), LIMIT).await;
        assert_eq!(metadata.unwrap().items.len(), 1_201);
        let requests = api.requests_of("GET");
        assert_eq!(requests.len(), 6);
        for request in requests {
            assert_eq!(request.query.get("limit").map(String::as_str), Some("500"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pages_that_expire_are_read_again_and_not_for_ever() {
        let (api, maps) = with_objects(501);
        let expired = Fault::Status(410, "the continue parameter is too old");
        api.fault(1, expired, is_later);
        let all = list(&maps, &ListParams::default(), LIMIT).await.unwrap();
        assert_eq!(all.items.len(), 501);
        let expired = Fault::Status(410, "the continue parameter is too old");
        api.fault(3, expired, is_later);
        let error = list(&maps, &ListParams::default(), LIMIT)
            .await
            .unwrap_err();
        assert_eq!(error.code(), Some(410));
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_does_not_come_fails_the_list() {
        let (api, maps) = with_objects(501);
        api.fault(1, Fault::Hang, is_later);
        let error = list(&maps, &ListParams::default(), LIMIT)
            .await
            .unwrap_err();
        assert!(matches!(error, CallError::Timeout(LIMIT)), "{error}");
    }
}
