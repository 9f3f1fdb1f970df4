use super::*;

fn kind(kind: &str) -> TemplateKind {
    TemplateKind {
        api_version: "example.com/v1".into(),
        kind: kind.into(),
    }
}

#[test]
fn everything_has_to_list_once_templates_included() {
    let mut readiness = Readiness::new();
    readiness.expect_template(kind("Sim"));
    let listed = [
        Input::Binding(Delta::Listed),
        Input::Work(Delta::Listed),
        Input::Namespace(Delta::Listed),
        Input::Queue(Delta::Listed),
        Input::Policy(Delta::Listed),
        Input::Config(Delta::Listed),
        Input::FaultPolicy(Delta::Listed),
        Input::PriorityClass(Delta::Listed),
        Input::ClaimTemplate(Delta::Listed),
        Input::Override(Delta::Listed),
        Input::ClusterOverride(Delta::Listed),
        Input::PodGroup(Delta::Listed),
        Input::Member(MemberEvent::Ready),
        Input::Template(kind("Sim"), Delta::Listed),
    ];
    for input in &listed {
        assert!(!readiness.became_ready(Time(0)), "before {input:?}");
        readiness.note(&Input::Template(kind("Other"), Delta::Listed));
        readiness.note(input);
    }
    assert_eq!(readiness.missing(), "");
    assert!(readiness.became_ready(Time(0)));
}

#[test]
fn a_kind_that_appears_later_delays_nothing() {
    let mut readiness = Readiness::new();
    readiness.missing.clear();
    assert!(readiness.became_ready(Time(0)));
    readiness.expect_template(kind("Sim"));
    assert!(readiness.is_ready());
}

#[test]
fn kinds_of_templates_are_taken_from_the_bindings_once() {
    let mut readiness = Readiness::new();
    assert!(!readiness.begin_with_templates());
    readiness.note(&Input::Binding(Delta::Listed));
    assert!(readiness.begin_with_templates());
    assert!(!readiness.begin_with_templates());
}

#[test]
fn a_kind_that_cannot_be_listed_delays_others_for_a_limited_time() {
    let mut readiness = Readiness::new();
    readiness.expect_template(kind("Sim"));
    assert!(!readiness.became_ready(Time(0)));
    assert!(
        !readiness.became_ready(Time(60_000)),
        "bindings are missing"
    );
    readiness
        .missing
        .retain(|source| matches!(source, ListSource::Templates(_)));
    assert!(!readiness.became_ready(Time(61_000)));
    assert!(!readiness.became_ready(Time(61_000 + TEMPLATES_WITHIN_MS - 1)));
    assert!(readiness.became_ready(Time(61_000 + TEMPLATES_WITHIN_MS)));
}
