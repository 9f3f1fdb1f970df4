//! `--mine`: who the user is, as Muster counts users.

use crate::args::{JobFilter, JobsCommand};
use crate::connect::api_error;
use anyhow::{Result, ensure};
use crds::names::counted_user;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;
use kube::api::{Api, PostParams};

/// Returns the command with the name of the user in place of `--mine`.
pub(super) async fn resolved(command: &JobsCommand, client: &Client) -> Result<JobsCommand> {
    let mut command = command.clone();
    resolve(&mut command.filter, client).await?;
    Ok(command)
}

/// Puts the name of the user in place of `--mine`.
pub(crate) async fn resolve(filter: &mut JobFilter, client: &Client) -> Result<()> {
    if !std::mem::take(&mut filter.mine) {
        return Ok(());
    }
    let api = Api::<SelfSubjectReview>::all(client.clone());
    let (params, question) = (PostParams::default(), SelfSubjectReview::default());
    let review = api.create(&params, &question).await.map_err(api_error)?;
    let info = review.status.and_then(|status| status.user_info);
    let name = info.and_then(|info| info.username).unwrap_or_default();
    let user = counted_user(&name);
    ensure!(
        !user.is_empty(),
        "--mine: the jobs of {name:?} count as those of their namespace, and not as yours; use --user-name"
    );
    filter.user_name = Some(user.to_owned());
    Ok(())
}
