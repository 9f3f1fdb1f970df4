//! `MusterConfig` (muster.io/v1alpha2, cluster scope, one object named `default`): settings that hold for all queues.
//!
//! They are an object on the control plane, not flags, so that all processes have the same, also after a restart. The
//! webhook and the controller read it; nothing writes it but people and `muster install`.

use crate::capacity_policy::Tenancy;
use crate::loose::Loose;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the object. The API server refuses others, and Muster ignores them.
pub const NAME: &str = "default";

/// Settings that hold for all queues. Without the object, each has its default.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "muster.io",
    version = "v1alpha2",
    kind = "MusterConfig",
    plural = "musterconfigs",
    derive = "Default",
    derive = "PartialEq",
    category = "muster",
    doc = "MusterConfig has the settings that hold for all queues. There is one, named `default`; without it each setting has its default.",
    annotation("helm.sh/resource-policy", "keep"),
    validation = Rule::new("self.metadata.name == 'default'").message(Message::Expression(
        "'there is one MusterConfig, and its name is default, not ' + self.metadata.name".to_owned()
    )),
    printcolumn(
        name = "TENANCY",
        type_ = "string",
        json_path = ".spec.tenancy",
        description = "Who may submit to queues that do not say so themselves"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct MusterConfigSpec {
    /// Who may submit to a queue whose CapacityPolicy has neither namespaceSelector nor tenancy.
    /// `muster install --tenancy` writes it.
    #[schemars(extend("default" = {"stated": "Open"}))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<Loose<Tenancy>>,
}

impl MusterConfig {
    /// Returns who may submit to queues that do not say so themselves. An unknown word closes them.
    #[must_use]
    pub fn tenancy(&self) -> Tenancy {
        let stated = self.spec.tenancy.as_ref();
        stated.map_or(Tenancy::Open, |word| {
            word.known().copied().unwrap_or(Tenancy::Closed)
        })
    }
}
