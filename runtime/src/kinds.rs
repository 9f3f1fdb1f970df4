//! Finds the API resource of a kind by apiVersion and kind; the API server is asked once for each.

use crate::client::{CallError, with_deadline};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::Mutex;

/// Deadline of asking.
const LIMIT: Duration = Duration::from_secs(5);

/// The kinds of one API server.
pub struct KindCache {
    client: Client,
    known: Mutex<HashMap<(String, String), (ApiResource, Scope)>>,
}

/// Why a kind is unknown.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// Its apiVersion is invalid.
    #[error("apiVersion {0:?} cannot be read; \"group/version\" or \"version\" is needed")]
    ApiVersion(String),
    /// The API server did not answer.
    #[error("{0}")]
    Call(#[from] CallError),
}

impl KindCache {
    /// Creates it for the API server of `client`, without any kind.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the API of `kind` in `namespace`, or everywhere for kinds without namespaces.
    ///
    /// # Errors
    /// Returns an error if `api_version` is invalid, or the API server does not know the kind.
    pub async fn api(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
    ) -> Result<Api<DynamicObject>, KindError> {
        self.api_in(api_version, kind, Some(namespace)).await
    }

    /// Returns the API of `kind` in `namespace`, or in all namespaces.
    ///
    /// # Errors
    /// As [`Self::api`].
    pub async fn api_in(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Result<Api<DynamicObject>, KindError> {
        let (resource, scope) = self.resource(api_version, kind).await?;
        let client = self.client.clone();
        Ok(match (scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(client, namespace, &resource)
            }
            (Scope::Namespaced, None) | (Scope::Cluster, _) => Api::all_with(client, &resource),
        })
    }

    async fn resource(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<(ApiResource, Scope), KindError> {
        let name = (api_version.to_owned(), kind.to_owned());
        // Locked during the request, so that a thousand jobs of a kind ask once.
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
