//! How a job ended, as its members report it on the binding.

use serde_json::Value;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobEnd {
    Succeeded,
    Failed,
}

/// Returns the end of a binding: it has ended if every part has, and failed if one has.
pub(super) fn of(binding: &Value) -> Option<JobEnd> {
    let clusters = binding["spec"]["clusters"]
        .as_array()
        .filter(|clusters| !clusters.is_empty())?;
    let items = binding["status"]["aggregatedStatus"].as_array()?;
    let part = |cluster: &Value| {
        let item = items
            .iter()
            .find(|item| item["clusterName"] == cluster["name"])?;
        end_of_part(&item["status"])
    };
    let ends = clusters.iter().map(part).collect::<Option<Vec<_>>>()?;
    Some(if ends.contains(&JobEnd::Failed) {
        JobEnd::Failed
    } else {
        JobEnd::Succeeded
    })
}

/// Returns the end of a part. A Volcano Job shows it by its phase, a batch Job and a PyTorchJob by
/// a condition.
fn end_of_part(status: &Value) -> Option<JobEnd> {
    let holds = |wanted: &str| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == wanted && condition["status"] == "True")
    };
    match status["state"]["phase"].as_str() {
        Some("Completed") => Some(JobEnd::Succeeded),
        Some("Failed" | "Aborted" | "Terminated") => Some(JobEnd::Failed),
        Some(_) => None,
        None if holds("Failed") => Some(JobEnd::Failed),
        None if holds("Complete") || holds("Succeeded") => Some(JobEnd::Succeeded),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn binding(statuses: Value) -> Value {
        json!({
            "spec": {"clusters": [{"name": "a"}, {"name": "b"}]},
            "status": {"aggregatedStatus": statuses},
        })
    }

    #[test]
    fn a_job_has_ended_when_all_its_parts_have() {
        let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let failed = json!({"state": {"phase": "Aborted"}});
        let running = json!({"state": {"phase": "Running"}});
        let of_both = |a: &Value, b: &Value| {
            of(&binding(
                json!([{"clusterName": "a", "status": a}, {"clusterName": "b", "status": b}]),
            ))
        };
        assert_eq!(of_both(&done, &done), Some(JobEnd::Succeeded));
        assert_eq!(of_both(&done, &failed), Some(JobEnd::Failed));
        assert_eq!(of_both(&done, &running), None);
        assert_eq!(
            of(&binding(json!([{"clusterName": "a", "status": done}]))),
            None
        );
        assert_eq!(
            of(&json!({"spec": {}, "status": {"aggregatedStatus": []}})),
            None
        );
    }
}
