//! What an ordinary tenant may do, with Kubernetes' and Karmada's own roles, and what is refused.

use crate::case::Case;
use crate::story::managed;

/// A tenant submits a job, and it runs; nothing outside the tenant's namespace is its own.
async fn a_tenants_day(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let tenant = case.tenant().await?;
    let gang = case.gang("runs", 1, 8);
    let job = case.submit_by(&tenant.objects, &gang.volcano()).await?;
    case.running(&job).await?;
    let user = &job.template["metadata"]["annotations"]["muster.io/user"];
    assert_eq!(*user, *tenant.user, "the webhook saw who submitted");
    assert!(
        !tenant
            .may("patch", "scheduling.volcano.sh", "queues")
            .await?
    );
    assert!(!tenant.may("patch", "", "namespaces").await?);
    Ok(())
}

#[test]
fn a_tenant_with_karmadas_own_role_submits_a_job_and_it_runs() {
    managed("tenant", a_tenants_day);
}
