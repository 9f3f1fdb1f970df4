//! Hands alerts that were posted to this process to the core, while it leads and knows all nodes.

use crate::messages::input::Input;
use crds::node_alert::NodeAlert;
use runtime::{Leadership, ReadyFlag};
use std::fmt;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Where alerts go. Clones share it.
#[derive(Clone)]
pub struct AlertIntake(Arc<watch::Sender<Option<OpenIntake>>>);

/// The core of the present life.
struct OpenIntake {
    inputs: mpsc::Sender<Input>,
    leadership: Leadership,
    ready: ReadyFlag,
}

impl Default for AlertIntake {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl fmt::Debug for AlertIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertIntake").finish_non_exhaustive()
    }
}

impl AlertIntake {
    /// Gives alerts to the core behind `inputs` from now on.
    pub(crate) fn open(
        &self,
        inputs: mpsc::Sender<Input>,
        leadership: Leadership,
        ready: ReadyFlag,
    ) {
        self.0.send_replace(Some(OpenIntake {
            inputs,
            leadership,
            ready,
        }));
    }

    /// Takes alerts.
    ///
    /// # Errors
    /// Returns why they cannot be taken now: they have to be posted again, perhaps to another replica.
    pub fn take(&self, alerts: Vec<NodeAlert>) -> Result<(), String> {
        let core = self.0.borrow();
        let leads = |core: &&OpenIntake| core.leadership.is_leading();
        let Some(core) = core.as_ref().filter(leads) else {
            return Err("another replica leads".to_owned());
        };
        if !core.ready.is_ready() {
            return Err("not everything has listed yet".to_owned());
        }
        let sent = core.inputs.try_send(Input::Alerts(alerts));
        sent.map_err(|_| "too many inputs wait".to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use runtime::Health;

    #[test]
    fn alerts_are_taken_once_this_replica_leads_and_is_ready() {
        let intake = AlertIntake::default();
        let wrong = |intake: &AlertIntake| intake.take(Vec::new()).unwrap_err();
        assert_eq!(wrong(&intake), "another replica leads");
        let (inputs, mut receiver) = mpsc::channel(1);
        let ready = Health::new().ready_check("controller");
        intake.open(inputs, Leadership::always(), ready.clone());
        assert_eq!(wrong(&intake), "not everything has listed yet");
        ready.set(true);
        intake.take(Vec::new()).unwrap();
        assert_eq!(wrong(&intake), "too many inputs wait");
        assert!(matches!(receiver.try_recv(), Ok(Input::Alerts(alerts)) if alerts.is_empty()));
    }
}
