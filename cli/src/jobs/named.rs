//! Finds jobs by name.

use super::ListedJob;
use anyhow::anyhow;
use kube::ResourceExt;

/// What the error about a job that is not found ends with.
const NOT_FOUND: &str = "there is no PodGroup of it";

/// Returns true for the error of [`choose`] about a job that is not found.
pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    error.to_string().ends_with(NOT_FOUND)
}

/// Returns the jobs that `names` name, each once, and an error for each name of none or of several.
/// `place` says where they were looked for.
pub(crate) fn choose<'a>(
    jobs: &'a [ListedJob],
    names: &[String],
    place: &str,
) -> (Vec<&'a ListedJob>, Vec<anyhow::Error>) {
    let (mut chosen, mut errors) = (Vec::<&ListedJob>::new(), Vec::new());
    for name in names {
        let named: Vec<&ListedJob> = jobs.iter().filter(|job| is_called(job, name)).collect();
        match named[..] {
            [] => errors.push(anyhow!("job {name:?} not found in {place}: {NOT_FOUND}")),
            [job] if chosen.iter().any(|other| other.uid() == job.uid()) => {}
            [job] => chosen.push(job),
            _ => {
                let names: Vec<String> = named.iter().map(|job| full_name(job, &named)).collect();
                let names = names.join(", ");
                errors.push(anyhow!("{name:?} is the name of several jobs: {names}"));
            }
        }
    }
    (chosen, errors)
}

/// Returns `job.batch/train`, with the namespace if the jobs `among` are of several.
fn full_name(job: &ListedJob, among: &[&ListedJob]) -> String {
    let namespace = job.object.namespace();
    match among
        .iter()
        .all(|other| other.object.namespace() == namespace)
    {
        true => job.reference(),
        false => format!("{} in {}", job.reference(), namespace.unwrap_or_default()),
    }
}

/// Returns true if `name` names the PodGroup, or the workload that owns it, as `train`, `job/train` or
/// `job.batch/train`.
pub(crate) fn is_called(job: &ListedJob, name: &str) -> bool {
    let of_template = || {
        let owner = job.template()?;
        Some(match name.split_once('/') {
            Some((kind, name)) => {
                let of_kind =
                    owner.kind.eq_ignore_ascii_case(kind) || job.kind().eq_ignore_ascii_case(kind);
                of_kind && owner.name == name
            }
            None => owner.name == name,
        })
    };
    job.object.name_any() == name || of_template() == Some(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::job;
    use super::*;

    #[test]
    fn a_job_is_found_by_each_of_its_names() {
        let job = job("train", "batch/v1", "Job", "{}", "{}");
        for (name, want) in [
            ("train", true),
            ("job/train", true),
            ("Job/train", true),
            ("job.batch/train", true),
            ("job.batch.volcano.sh/train", false),
            ("train-job", true),
            ("PyTorchJob/train", false),
            ("trai", false),
        ] {
            assert_eq!(is_called(&job, name), want, "{name}");
        }
    }

    #[test]
    fn names_of_none_or_several_are_errors_and_the_others_are_found() {
        let jobs = [
            job("train", "batch/v1", "Job", "{}", "{}"),
            job("train", "kubeflow.org/v1", "PyTorchJob", "{}", "{}"),
            job("sweep", "batch/v1", "Job", "{}", "{}"),
        ];
        let names = ["sweep", "job/sweep", "train", "gone", "pytorchjob/train"];
        let names = names.map(str::to_owned);
        let (chosen, errors) = choose(&jobs, &names, "namespace \"vision\"");
        let chosen: Vec<String> = chosen.iter().map(|job| job.reference()).collect();
        assert_eq!(chosen, ["job.batch/sweep", "pytorchjob.kubeflow.org/train"]);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(errors.join("\n"), @r#"
        "train" is the name of several jobs: job.batch/train, pytorchjob.kubeflow.org/train
        job "gone" not found in namespace "vision": there is no PodGroup of it
        "#);
    }
}
