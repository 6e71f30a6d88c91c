//! The text of one scrape.

use std::collections::{BTreeMap, BTreeSet};

/// The series of a scrape.
#[derive(Clone, Debug)]
pub struct Scrape {
    pub text: String,
    series: Vec<Series>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    pub fn of(text: String) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let series = lines.map(series).collect();
        Self { text, series }
    }

    /// The names of all series.
    pub fn names(&self) -> BTreeSet<&str> {
        self.series.iter().map(|series| series.name.as_str()).collect()
    }

    /// The sum of the series that have these labels. There must be one.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |series: &&Series| {
            let labels = &mut labels.iter();
            series.name == name
                && labels.all(|(label, value)| {
                    series.labels.get(*label).is_some_and(|has| has == value)
                })
        };
        let values: Vec<_> = self.series.iter().filter(has).map(|it| it.value).collect();
        assert!(!values.is_empty(), "no {name} with {labels:?} in\n{}", self.text);
        values.iter().sum()
    }
}

fn series(line: &str) -> Series {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
    let labels = labels.map(|label| {
        let (name, value) = label.split_once("=\"").unwrap();
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    });
    Series { name: name.to_owned(), labels: labels.collect(), value: value.parse().unwrap() }
}
