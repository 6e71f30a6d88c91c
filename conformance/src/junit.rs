//! JUnit XML, for CI systems.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as Document, TestCase, TestCaseStatus, TestSuite};

use crate::{
    case::CaseInfo,
    outcome::{Outcome, Report},
};

/// The reports as a JUnit document with a test suite for each theme. Cases that were left out
/// are included, with the reason. Every test suite has the properties.
///
/// # Errors
/// When the XML cannot be written.
pub(crate) fn to_junit(
    reports: &[Report],
    left_out: &[(CaseInfo, String)],
    properties: &[(&str, String)],
) -> anyhow::Result<String> {
    let mut suites: Vec<TestSuite> = Vec::new();
    let mut add = |info: &CaseInfo, status: TestCaseStatus, took: Duration| {
        let (theme, sentence) = info.name.split_once(": ").unwrap_or(("", &info.name));
        let mut case = TestCase::new(sentence, status);
        case.set_classname(theme).set_time(took);
        let index = suites.iter().position(|suite| suite.name.as_str() == theme);
        let index = index.unwrap_or_else(|| {
            suites.push(suite(theme, properties));
            suites.len() - 1
        });
        let suite = &mut suites[index];
        suite.add_test_case(case);
        // The cases of a theme may run at the same time; this is the sum of their times.
        suite.set_time(suite.time.unwrap_or_default() + took);
    };
    for report in reports {
        add(&report.case, status(&report.outcome), report.took);
    }
    for (case, why) in left_out {
        add(case, status(&Outcome::Ignored(why.clone())), Duration::ZERO);
    }
    let mut document = Document::new("leasehold-conformance");
    document.set_time(suites.iter().filter_map(|suite| suite.time).sum());
    document.add_test_suites(suites);
    Ok(document.to_string()?)
}

fn suite(theme: &str, properties: &[(&str, String)]) -> TestSuite {
    let mut suite = TestSuite::new(theme);
    for (name, value) in properties {
        suite.add_property((*name, value.as_str()));
    }
    suite
}

fn status(outcome: &Outcome) -> TestCaseStatus {
    let (mut status, message) = match outcome {
        Outcome::Passed => return TestCaseStatus::success(),
        Outcome::Failed(how) => (TestCaseStatus::non_success(NonSuccessKind::Failure), how),
        Outcome::Ignored(why) => (TestCaseStatus::skipped(), why),
    };
    // The first line says what is wrong. The lines after it are a timeline, whose line breaks
    // would be lost in an attribute.
    let (first, rest) = message.split_once('\n').unwrap_or((message, ""));
    status.set_message(first);
    if !rest.is_empty() {
        status.set_description(message.as_str());
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Demand;

    fn case(name: &str) -> CaseInfo {
        CaseInfo { name: name.to_owned(), demand: Demand::Core }
    }

    fn report(name: &str, outcome: Outcome) -> Report {
        Report { case: case(name), outcome, took: Duration::from_millis(500) }
    }

    fn xml() -> String {
        let reports = [
            report("renew: a", Outcome::Passed),
            report("renew: b", Outcome::Failed("too <early>\n> 1 ms".to_owned())),
            report("fair: c", Outcome::Ignored("no FAIR".to_owned())),
        ];
        let left_out = [(case("two: d"), "no second socket was given".to_owned())];
        let properties = [("version", "1.2.3".to_owned()), ("features", "FENCING".to_owned())];
        to_junit(&reports, &left_out, &properties).unwrap()
    }

    #[test]
    fn each_outcome_is_reported() {
        let xml = xml();
        assert!(xml.contains(r#"tests="4" skipped="2" failures="1""#), "{xml}");
        assert!(xml.contains("too &lt;early>") || xml.contains("too &lt;early&gt;"), "{xml}");
        assert!(xml.contains(r#"classname="fair""#), "{xml}");
    }

    #[test]
    fn a_case_that_was_left_out_is_reported_with_the_reason() {
        let xml = xml();
        assert!(xml.contains(r#"<skipped message="no second socket was given"/>"#), "{xml}");
    }

    #[test]
    fn times_and_properties_are_reported() {
        let xml = xml();
        assert!(xml.contains(r#"name="version" value="1.2.3""#), "{xml}");
        assert!(xml.contains(r#"name="features" value="FENCING""#), "{xml}");
        assert!(xml.contains(r#"failures="1" errors="0" time="1.500""#), "{xml}");
        assert!(xml.contains(r#"errors="0" failures="1" time="1.000""#), "{xml}");
    }

    #[test]
    fn a_timeline_keeps_its_line_breaks() {
        let xml = xml();
        assert!(xml.contains("&gt; 1 ms") || xml.contains("> 1 ms"), "{xml}");
        assert!(xml.contains(r#"message="too &lt;early"#), "{xml}");
    }
}
