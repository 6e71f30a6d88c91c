//! JUnit XML, for CI systems.

use quick_junit::{NonSuccessKind, Report as Document, TestCase, TestCaseStatus, TestSuite};

use crate::outcome::{Outcome, Report};

/// The reports as a JUnit document, one test suite for each theme.
///
/// # Errors
/// When the XML cannot be written.
pub fn to_junit(reports: &[Report]) -> anyhow::Result<String> {
    let mut document = Document::new("leasehold-conformance");
    let mut suites: Vec<TestSuite> = Vec::new();
    for report in reports {
        let (theme, sentence) = report.case.name.split_once(": ").unwrap_or(("", ""));
        let mut case = TestCase::new(sentence, status(&report.outcome));
        case.set_classname(theme).set_time(report.took);
        match suites.iter_mut().find(|suite| suite.name.as_str() == theme) {
            Some(suite) => suite.add_test_case(case),
            None => {
                let mut suite = TestSuite::new(theme);
                suite.add_test_case(case);
                suites.push(suite);
                continue;
            }
        };
    }
    document.add_test_suites(suites);
    Ok(document.to_string()?)
}

fn status(outcome: &Outcome) -> TestCaseStatus {
    let (mut status, message) = match outcome {
        Outcome::Passed => return TestCaseStatus::success(),
        Outcome::Failed(how) => (TestCaseStatus::non_success(NonSuccessKind::Failure), how),
        Outcome::Ignored(why) => (TestCaseStatus::skipped(), why),
    };
    status.set_message(message.as_str());
    status
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::case::{CaseInfo, Demand};

    #[test]
    fn each_outcome_is_told() {
        let report = |name: &str, outcome| Report {
            case: CaseInfo { name: name.to_owned(), demand: Demand::Core },
            outcome,
            took: Duration::from_millis(5),
        };
        let xml = to_junit(&[
            report("renew: a", Outcome::Passed),
            report("renew: b", Outcome::Failed("too <early>".to_owned())),
            report("fair: c", Outcome::Ignored("no FAIR".to_owned())),
        ])
        .unwrap();
        assert!(xml.contains(r#"tests="3" skipped="1" failures="1""#), "{xml}");
        assert!(xml.contains("too &lt;early>") || xml.contains("too &lt;early&gt;"), "{xml}");
        assert!(xml.contains(r#"classname="fair""#), "{xml}");
    }
}
