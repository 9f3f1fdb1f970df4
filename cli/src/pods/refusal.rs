//! What a user lacks to reach the pods of a job: the right, where it is needed, and the page that says how to grant it.

use runtime::client::CallError;

/// The page about these rights.
const PAGE: &str = "docs/how-to/logs.md";

/// Returns why a call to `cluster` has failed. `right` is what it takes in the member, such as `list pods`.
pub(crate) fn reason(error: &CallError, right: &str, cluster: &str, namespace: &str) -> String {
    let message = error.message();
    let what = match error.code() {
        Some(403) if message.contains("clusters/proxy") => {
            format!(
                "on the control plane you may not use clusters/proxy of {cluster} (get, and create for exec)"
            )
        }
        Some(403) if message.contains("impersonate") => {
            format!(
                "Karmada may not act as you in {cluster}: its impersonator lacks the right there"
            )
        }
        Some(403) => format!("in {cluster} you may not {right} in namespace {namespace:?}"),
        Some(401) => format!("{cluster} does not know you"),
        Some(404) if message.contains("clusters.cluster.karmada.io") => {
            format!("{cluster} is no cluster of this control plane any more")
        }
        _ => return format!("{cluster} does not answer: {message}"),
    };
    format!("{what}; {PAGE} says how to grant that ({message})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refused(code: u16, message: &str) -> CallError {
        let status = Status::failure(message, "Forbidden").with_code(code);
        CallError::Kube(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn a_refusal_names_the_right_that_is_missing_and_where() {
        let of = |message| reason(&refused(403, message), "list pods", "gpu-a", "vision");
        let proxy = of(
            "clusters.cluster.karmada.io \"gpu-a\" is forbidden: User \"eve\" cannot get resource \"clusters/proxy\"",
        );
        assert!(
            proxy.starts_with("on the control plane you may not use clusters/proxy of gpu-a"),
            "{proxy}"
        );
        let pods = of("pods is forbidden: User \"eve\" cannot list resource \"pods\"");
        assert!(
            pods.starts_with("in gpu-a you may not list pods in namespace \"vision\"; docs/how-to"),
            "{pods}"
        );
        let silent = reason(&refused(503, "no route"), "list pods", "gpu-a", "vision");
        assert_eq!(silent, "gpu-a does not answer: no route");
    }
}
