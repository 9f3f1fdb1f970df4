//! The long stories, run by `make soak`: kills at changing moments, every story of the engine with
//! a kill of Muster in its middle, and two queues that reclaim from each other for ten minutes.

use std::time::Duration;

use crate::crash::crowd_with_kills;
use crate::story::{
    killed_with_spare, managed, managed_alone, managed_and_killed, managed_with_spare,
};
use crate::upgrade::Leads;
use crate::{
    backfill, bounds, elastic, emptied, hierarchy, lost_cluster, not_started, queues_live, reclaim,
    split, split_retries, upgrade,
};

#[test]
#[ignore = "soak"]
fn soak_of_kills_at_changing_moments() {
    for round in 0..20_u64 {
        managed_alone(&format!("soakkill{round}"), async |case| {
            // The moments differ from round to round, so that they cover everything that happens to
            // a crowd.
            let pauses = [300 + 370 * round, 200 + 530 * (round % 7), 4_000];
            crowd_with_kills(case, 60, &pauses.map(Duration::from_millis)).await
        });
    }
}

#[test]
#[ignore = "soak"]
fn soak_of_faults_with_kills_at_random_moments() {
    let seed = std::env::var("E2E_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(23);
    managed_alone("soakfaults", async |case| {
        crate::faults_killed::side_by_side(case, seed).await
    });
}

#[test]
#[ignore = "soak"]
fn soak_of_leaders_that_are_stopped_and_go_on() {
    let rounds = std::env::var("E2E_ROUNDS").ok();
    let rounds = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(30);
    managed_alone("soakstop", async |case| {
        crate::stopped::leaders_stopped(case, rounds).await
    });
}

#[test]
#[ignore = "soak"]
fn soak_of_two_queues_pulling_at_each_other() {
    let ten_minutes = Duration::from_secs(600);
    managed("soakpull", async |case| {
        reclaim::pulling_for(case, ten_minutes).await
    });
    managed_and_killed("soakpullkill", async |case| {
        reclaim::pulling_for(case, ten_minutes / 5).await
    });
}

#[test]
#[ignore = "soak"]
fn soak_of_two_gangs_with_room_for_one() {
    managed("soaktwo", async |case| split::contended_for(case, 50).await);
}

#[test]
#[ignore = "soak"]
fn soak_of_a_hundred_gangs_in_parts() {
    managed_alone("soakhundred", split::hundred);
}

#[test]
#[ignore = "soak"]
fn soak_of_jobs_that_cannot_start() {
    managed_and_killed("soakimage", not_started::no_such_image);
}

#[test]
#[ignore = "soak"]
fn soak_of_split_jobs_that_restart() {
    managed_and_killed("soakretry", split_retries::restarts);
}

#[test]
#[ignore = "soak"]
fn soak_of_a_lost_cluster() {
    killed_with_spare(lost_cluster::LOST, "soaklost", lost_cluster::lost);
}

#[test]
#[ignore = "soak"]
fn soak_of_a_member_that_comes_back_empty() {
    managed_with_spare(emptied::EMPTIED, "soakemptied", emptied::emptied);
}

#[test]
#[ignore = "soak"]
fn soak_of_many_jobs_that_are_deleted() {
    managed_alone("soakdeleted", crate::many_deleted::deleted);
}

#[test]
#[ignore = "soak"]
fn soak_of_upgrade_and_roll_back() {
    // The binary is built before the plane starts, because both together need too much memory.
    let previous = e2e::harness::earlier::previous().expect("the previous Muster");
    managed_alone("soakupgrade", async |case| {
        upgrade::back_and_forth(case, &previous, Leads::First).await
    });
    managed_alone("soakrollback", async |case| {
        upgrade::back_and_forth(case, &previous, Leads::Now).await
    });
}

#[test]
#[ignore = "soak"]
fn soak_of_an_upgrade_from_an_earlier_api() {
    // The binary is built before the plane starts, because both together need too much memory.
    let first = e2e::harness::earlier::first().expect("the earlier Muster");
    managed_alone("soakconvert", async |case| {
        upgrade::with_conversion(case, &first).await
    });
}

#[test]
#[ignore = "soak"]
fn soak_of_an_upgrade_with_a_thousand_jobs() {
    let previous = e2e::harness::earlier::previous().expect("the previous Muster");
    let jobs = std::env::var("E2E_JOBS").ok();
    let jobs = jobs.and_then(|jobs| jobs.parse().ok()).unwrap_or(1_000);
    managed_alone("soakcrowdup", async |case| {
        crate::upgrade_crowd::upgraded(case, &previous, jobs).await
    });
}

#[test]
#[ignore = "soak"]
fn soak_of_a_restored_etcd() {
    crate::restored::restored();
}

#[test]
#[ignore = "soak"]
fn soak_of_uninstalling() {
    crate::uninstalled::uninstalled();
}

#[test]
#[ignore = "soak"]
fn soak_of_uninstalling_with_parts() {
    crate::uninstalled_split::uninstalled_with_parts();
}

#[test]
#[ignore = "soak"]
fn soak_of_an_hour_at_rest() {
    let hour = Duration::from_secs(3_600);
    managed("soakrest", async |case| {
        crate::rest::at_rest_for(case, hour).await
    });
}

/// Defines stories whose variant with a kill in the middle is not part of every run.
macro_rules! with_a_kill_in_the_middle {
    ($($name:ident: $namespace:literal, $story:path;)+) => {$(
        #[test]
        #[ignore = "soak"]
        fn $name() {
            managed_and_killed($namespace, $story);
        }
    )+};
}

with_a_kill_in_the_middle! {
    soak_of_sharing: "soakshare", hierarchy::sharing_by_what_is_deserved;
    soak_of_settling: "soaksettle", reclaim::two_queues_pulling;
    soak_of_a_guarantee: "soaksure", reclaim::guarantee;
    soak_of_delayed_scheduling: "soakdelayed", backfill::delayed_scheduling;
    soak_of_backfill: "soakpass", backfill::short_job_passes;
    soak_of_an_elastic_start: "soakpartly", elastic::starts_small;
    soak_of_growth_in_two_clusters: "soakboth", crate::elastic_parts::grows_in_both;
    soak_of_bounds: "soakbounds", bounds::of_class_and_cluster;
    soak_of_lowered_quota: "soaklowered", queues_live::lowered_and_raised;
    soak_of_a_queue_made_again: "soakclosed", queues_live::closed_deleted_recreated;
    soak_of_a_gang_in_parts: "soaksplit", split::volcano;
    soak_of_indexes_in_parts: "soakindexed", split::indexed;
    soak_of_a_part_that_failed: "soakpart", split::failed;
    soak_of_a_rendezvous: "soaktorch", crate::rendezvous::pytorch;
    soak_of_services: "soakserve", crate::services::pytorch;
    soak_of_a_service_for_each_pod: "soakservetf", crate::services::tensorflow;
    soak_of_a_service_of_a_volcano_job: "soakservevj", crate::services::volcano;
    soak_of_a_service_of_an_indexed_job: "soakserveij", crate::services::indexed;
    soak_of_a_service_of_a_jobset: "soakservejs", crate::services::set;
    soak_of_mpi: "soakmpi", crate::mpi::mpi;
    soak_of_ray: "soakray", crate::ray::job;
    soak_of_cluster_specs: "soaktf", crate::cluster_spec::tensorflow;
    soak_of_a_task_that_completes: "soakleads", crate::leading_part::volcano;
    soak_of_times_to_live: "soakttl", crate::ttl::ttl;
    soak_of_a_crowd_that_waits: "soakcrowd", queues_live::crowd_waits;
}
