//! Reads one page of a list and leaves out objects that cannot be decoded.
//!
//! Normally a page is decoded as it comes. Only if that fails is the page read again and decoded object by
//! object, so that only lists with such an object cost more.

use super::{CALL_LIMIT, ObjectKey, WatchOptions};
use crate::client::{CallError, with_deadline};
use kube::api::ListParams;
use kube::core::Request;
use kube::{Api, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;

/// One page.
pub(super) struct Page<K> {
    pub(super) objects: Vec<K>,
    /// Objects that exist and could not be decoded.
    pub(super) skipped: Vec<ObjectKey>,
    pub(super) version: String,
    pub(super) continue_token: Option<String>,
}

/// Reads the page at `continue_token`, or the first page without one.
#[expect(clippy::disallowed_methods, reason = "of one page")]
pub(super) async fn page<K>(
    api: &Api<K>,
    options: &WatchOptions,
    continue_token: Option<&str>,
) -> Result<Page<K>, CallError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = ListParams {
        label_selector: options.labels.clone(),
        field_selector: options.fields.clone(),
        limit: Some(options.page_size),
        continue_token: continue_token.map(str::to_owned),
        ..ListParams::default()
    };
    match with_deadline(api.list(&params), CALL_LIMIT).await {
        Ok(list) => Ok(Page {
            objects: list.items,
            skipped: Vec::new(),
            version: list.metadata.resource_version.unwrap_or_default(),
            continue_token: list.metadata.continue_.filter(|token| !token.is_empty()),
        }),
        Err(CallError::Kube(kube::Error::SerdeError(_))) => one_by_one(api, &params).await,
        Err(error) => Err(error),
    }
}

/// Returns the present version of the server, by a fresh read of at most one object.
#[expect(clippy::disallowed_methods, reason = "of one object")]
pub(super) async fn version<K>(api: &Api<K>, options: &WatchOptions) -> Result<String, CallError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = ListParams {
        label_selector: options.labels.clone(),
        field_selector: options.fields.clone(),
        limit: Some(1),
        ..ListParams::default()
    };
    let list = with_deadline(api.list_metadata(&params), CALL_LIMIT).await?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// A list whose items are not decoded yet.
#[derive(Deserialize)]
struct LooseList {
    #[serde(default)]
    metadata: LooseMeta,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct LooseMeta {
    resource_version: String,
    r#continue: String,
}

async fn one_by_one<K>(api: &Api<K>, params: &ListParams) -> Result<Page<K>, CallError>
where
    K: Resource + DeserializeOwned + Clone,
{
    let request = Request::new(api.resource_url())
        .list(params)
        .map_err(kube::Error::BuildRequest)?;
    let client = api.clone().into_client();
    let list: LooseList = with_deadline(client.request(request), CALL_LIMIT).await?;
    let mut objects = Vec::with_capacity(list.items.len());
    let mut skipped = Vec::new();
    for item in list.items {
        let key = key_of(&item);
        match serde_json::from_value(item) {
            Ok(object) => objects.push(object),
            Err(error) => {
                tracing::warn!(%key, %error, "an object cannot be decoded and is left out");
                skipped.push(key);
            }
        }
    }
    Ok(Page {
        objects,
        skipped,
        version: list.metadata.resource_version,
        continue_token: Some(list.metadata.r#continue).filter(|token| !token.is_empty()),
    })
}

fn key_of(item: &Value) -> ObjectKey {
    let text = |field: &str| item["metadata"][field].as_str().map(str::to_owned);
    ObjectKey {
        namespace: text("namespace"),
        name: text("name").unwrap_or_default(),
    }
}
