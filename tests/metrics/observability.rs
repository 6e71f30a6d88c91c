//! `deploy/observability/`: what Prometheus and Grafana get from a real scrape.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    probed::{Probed, component},
    scrape::Scrape,
};

/// What an expression has besides names of series.
const KEYWORDS: [&str; 12] = [
    "and",
    "bool",
    "by",
    "group_left",
    "group_right",
    "ignoring",
    "offset",
    "on",
    "or",
    "unless",
    "without",
    "inf",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/observability")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// A sidecar has every series there is.
async fn scrape() -> Scrape {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "[]");
    Probed::sidecar(yaml.path(), &[]).await.0.scrape().await
}

/// The expressions of the dashboard, and those of its variables.
fn of_dashboard() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| collect(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut found = Vec::new();
    collect(&dashboard, &mut found);
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let query = variable["query"]["query"].as_str().unwrap_or_default();
        let series = query.strip_prefix("label_values(").and_then(|rest| rest.split_once(','));
        found.extend(series.map(|(series, _)| series.to_owned()));
    }
    assert!(found.len() > 30, "{found:?}");
    found
}

fn alerts() -> Vec<Value> {
    let rules: Value = serde_yaml_ng::from_str(&read("alerts.yaml")).unwrap();
    let alerts = rules["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(alerts.len() > 10, "{alerts:?}");
    alerts
}

/// The names of the series in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = expression;
    // The labels of the aggregation that was read last, if it has any.
    let mut is_label_list = false;
    while let Some(first) = rest.chars().next() {
        let past = |end: char| rest.split_once(end).map_or("", |(_, after)| after);
        match first {
            // No string here has a brace, a bracket or an escaped quotation mark.
            '{' => rest = past('}'),
            '[' => rest = past(']'),
            '"' => rest = rest[1..].split_once('"').map_or("", |(_, after)| after),
            '(' if is_label_list => (rest, is_label_list) = (past(')'), false),
            c if c.is_ascii_alphabetic() || c == '_' => {
                let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
                let (word, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
                rest = after.trim_start();
                is_label_list = KEYWORDS.contains(&word);
                let is_function = rest.starts_with('(');
                let is_aggregation = rest.starts_with("by") || rest.starts_with("without");
                if !is_label_list && !is_function && !is_aggregation {
                    names.insert(word.to_owned());
                }
            }
            c if c.is_ascii_digit() => {
                rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
            }
            c => rest = &rest[c.len_utf8()..],
        }
    }
    names
}

#[test]
fn the_names_of_series_are_found_in_expressions() {
    let expression = r#"histogram_quantile(0.99, sum by (le, end) (rate(a_bucket{x="y"}[5m]))) / on (job) b > 0.8 and c"#;
    let found = ["a_bucket", "b", "c"].map(str::to_owned);
    assert_eq!(names(expression), found.into());
}

#[tokio::test]
async fn every_series_of_the_dashboard_and_of_the_alerts_is_there() {
    let scrape = scrape().await;
    let there = scrape.names();
    let of_alerts =
        alerts().into_iter().map(|alert| alert["expr"].as_str().unwrap().to_owned());
    for expression in of_dashboard().into_iter().chain(of_alerts) {
        let names = names(&expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(there.contains(name.as_str()), "no {name}: {expression}");
        }
    }
}

/// What nobody looks at need not be counted.
#[tokio::test]
async fn the_dashboard_shows_every_series() {
    let scrape = scrape().await;
    let shown: BTreeSet<_> = of_dashboard().iter().flat_map(|it| names(it)).collect();
    for name in scrape.names().into_iter().filter(|name| name.starts_with("leasehold_")) {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        let is_shown = shown.iter().any(|shown| shown.starts_with(family));
        assert!(is_shown, "{name}");
    }
}

#[test]
fn every_alert_has_a_section_in_the_runbook_and_a_test() {
    let runbook = fs::read_to_string(folder().join("../../docs/operations.md")).unwrap();
    let tests = read("tests.yaml");
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let url = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert!(
            url.ends_with(&format!("/docs/operations.md#{}", name.to_lowercase())),
            "{url}"
        );
        assert!(runbook.contains(&format!("### {name}\n")), "no section {name}");
        assert!(tests.contains(&format!("alertname: {name}\n")), "no test of {name}");
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["info", "warning", "critical"].contains(&severity), "{name}: {severity}");
        assert!(alert["for"].is_string(), "{name} has no `for`");
    }
}

/// Every series is described in the page.
#[tokio::test]
async fn every_series_is_on_the_page() {
    let page = fs::read_to_string(folder().join("../../docs/metrics.md")).unwrap();
    let scrape = scrape().await;
    for line in scrape.text.lines().filter_map(|line| line.strip_prefix("# TYPE leasehold_")) {
        let (name, _) = line.split_once(' ').unwrap();
        assert!(page.contains(&format!("`leasehold_{name}`")), "leasehold_{name}");
    }
}

/// Runs promtool, or says why not.
fn promtool(arguments: &[&str], stdin: &str) {
    use std::{io::Write as _, process::Stdio};
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(folder());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = match command.spawn() {
        Ok(running) => running,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Not by println, which is not shown for a test that passes.
            let why = b"\nignored: there is no promtool; `make setup-test` installs it\n";
            std::io::stdout().write_all(why).unwrap();
            return;
        }
        Err(error) => panic!("{error}"),
    };
    running.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let done = running.wait_with_output().unwrap();
    assert!(done.status.success(), "promtool {arguments:?}: {done:?}");
}

#[test]
fn the_alerts_fire_when_they_should_and_only_then() {
    promtool(&["check", "rules", "alerts.yaml"], "");
    promtool(&["test", "rules", "tests.yaml"], "");
}

#[tokio::test]
async fn promtool_accepts_a_scrape() {
    promtool(&["check", "metrics"], &scrape().await.text);
}

/// As rules, because promtool parses no single expression.
#[test]
fn promtool_can_read_every_expression_of_the_dashboard() {
    let rules: Vec<_> = of_dashboard()
        .iter()
        .enumerate()
        .map(|(i, expression)| {
            let expression = expression.replace("$__rate_interval", "5m");
            json!({ "record": format!("panel:{i}"), "expr": expression })
        })
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    let rules = json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    fs::write(file.path(), serde_yaml_ng::to_string(&rules).unwrap()).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()], "");
}
