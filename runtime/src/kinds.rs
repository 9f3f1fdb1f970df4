//! Where objects of a kind are, by apiVersion and kind: asked of the API server once each.

use crate::client::{CallError, with_deadline};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long asking may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The kinds of one API server.
pub struct KindCache {
    client: Client,
    known: Mutex<HashMap<(String, String), (ApiResource, Scope)>>,
}

/// Why a kind is not known.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// Its apiVersion is none.
    #[error("apiVersion {0:?} cannot be read; \"group/version\" or \"version\" is needed")]
    ApiVersion(String),
    /// The API server did not tell.
    #[error("{0}")]
    Call(#[from] CallError),
}

impl KindCache {
    /// Those of the API server of `client`; none is asked for yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// By which they are reached.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The objects of `kind` in `namespace`, or everywhere if they have none.
    ///
    /// # Errors
    /// Where `api_version` is none, or the API server does not tell of the kind.
    pub async fn api(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
    ) -> Result<Api<DynamicObject>, KindError> {
        let (resource, scope) = self.resource(api_version, kind).await?;
        let client = self.client.clone();
        Ok(match scope {
            Scope::Namespaced => Api::namespaced_with(client, namespace, &resource),
            Scope::Cluster => Api::all_with(client, &resource),
        })
    }

    async fn resource(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<(ApiResource, Scope), KindError> {
        let name = (api_version.to_owned(), kind.to_owned());
        // Held over the request, so that a thousand jobs of a kind ask once.
        let mut known = self.known.lock().await;
        if let Some(known) = known.get(&name) {
            return Ok(known.clone());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.is_empty() || version.contains('/') {
            return Err(KindError::ApiVersion(name.0));
        }
        let wanted = GroupVersionKind::gvk(group, version, kind);
        let (resource, capabilities) =
            with_deadline(pinned_kind(&self.client, &wanted), LIMIT).await?;
        let found = (resource, capabilities.scope);
        known.insert(name, found.clone());
        Ok(found)
    }
}
