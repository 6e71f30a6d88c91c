//! What the answers of all Sentinels mean.

use std::{fmt::Write as _, sync::Arc};

use ::redis::{ErrorKind, RedisError};

use super::ask::{NoOpinion, Opinion};

/// Why the Sentinels do not name the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Unresolved {
    /// The property that is wrong. `None` if it may be none.
    pub(in super::super) field: Option<&'static str>,
    /// What is wrong with the property, or a sentence.
    pub(in super::super) problem: Arc<str>,
}

impl Unresolved {
    fn refused(field: &'static str, problem: impl Into<Arc<str>>) -> Self {
        Self { field: Some(field), problem: problem.into() }
    }

    pub(super) fn unavailable(problem: impl Into<Arc<str>>) -> Self {
        Self { field: None, problem: problem.into() }
    }

    pub(super) fn outdated() -> Self {
        Self::unavailable(
            "the Sentinels that answer name the master of an older configuration than was known",
        )
    }
}

impl std::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field {
            Some(field) => write!(f, "{field} {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

/// The opinion with the greatest epoch.
pub(super) fn of(
    master_name: &str,
    answers: &[(String, Result<Opinion, NoOpinion>)],
) -> Result<Opinion, Unresolved> {
    let opinions =
        || answers.iter().filter_map(|(from, answer)| Some((from, answer.as_ref().ok()?)));
    let Some((named_by, newest)) = opinions().max_by_key(|(_, opinion)| opinion.epoch) else {
        return Err(without_opinion(master_name, answers));
    };
    let other = opinions().find(|(_, it)| it.epoch == newest.epoch && *it != newest);
    match other {
        None => Ok(newest.clone()),
        Some((other_by, other)) => Err(Unresolved::refused(
            "redisHost",
            format!(
                "lists Sentinels that disagree about {master_name:?}: {named_by} names {}:{}, \
                 {other_by} names {}:{}",
                newest.host, newest.port, other.host, other.port
            ),
        )),
    }
}

/// The most telling of the reasons: what the configuration can mend comes first.
fn without_opinion(
    master_name: &str,
    answers: &[(String, Result<Opinion, NoOpinion>)],
) -> Unresolved {
    let reasons =
        || answers.iter().filter_map(|(from, answer)| Some((from, answer.as_ref().err()?)));
    let refused = reasons().find_map(|(from, why)| match why {
        NoOpinion::Unknown => Some(Unresolved::refused(
            "sentinelMasterName",
            format!("is {master_name:?}, which the Sentinel at {from} does not know"),
        )),
        NoOpinion::NoSentinel => Some(Unresolved::refused(
            "redisHost",
            format!("lists {from}, which is no Sentinel"),
        )),
        NoOpinion::Error(error) => {
            let (field, problem) = field_of(error)?;
            Some(Unresolved::refused(field, format!("{problem} (Sentinel at {from}: {why})")))
        }
        NoOpinion::Late | NoOpinion::Lost => None,
    });
    refused.unwrap_or_else(|| {
        let mut problem = "no Sentinel names the master".to_owned();
        for (from, why) in reasons() {
            let _ = write!(problem, "; {from}: {why}");
        }
        problem.push_str("; start them, or correct redisHost or enableTLS");
        Unresolved::unavailable(problem)
    })
}

/// The property that an error of a Sentinel is about.
fn field_of(error: &RedisError) -> Option<(&'static str, &'static str)> {
    match (error.code(), error.kind()) {
        (Some("NOAUTH"), _) => Some(("sentinelPassword", "is missing")),
        (Some("WRONGPASS"), _) | (_, ErrorKind::AuthenticationFailed) => {
            Some(("sentinelPassword", "or sentinelUsername was refused"))
        }
        (Some("NOPERM"), _) => Some((
            "sentinelUsername",
            "is missing, or lacks a permission that docs/redis.md lists",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(epoch: u64, port: u16) -> (String, Result<Opinion, NoOpinion>) {
        ("s".into(), Ok(Opinion { epoch, host: "h".into(), port }))
    }

    fn port(answers: &[(String, Result<Opinion, NoOpinion>)]) -> u16 {
        of("main", answers).unwrap().port
    }

    #[test]
    fn the_greatest_epoch_wins_even_if_most_name_another_master() {
        assert_eq!(port(&[says(4, 1), says(5, 2), says(4, 1)]), 2);
        assert_eq!(port(&[says(4, 1), says(4, 1)]), 1);
    }

    #[test]
    fn sentinels_that_disagree_are_the_fault_of_their_list() {
        let unresolved = of("main", &[says(5, 1), says(4, 3), says(5, 2)]).unwrap_err();
        assert_eq!(unresolved.field, Some("redisHost"));
        assert!(unresolved.problem.contains("h:1") && unresolved.problem.contains("h:2"));
    }

    #[test]
    fn one_opinion_is_enough() {
        let silent = ("t".to_owned(), Err(NoOpinion::Late));
        assert_eq!(port(&[silent.clone(), says(1, 7)]), 7);
        let unresolved = of("main", &[silent]).unwrap_err();
        assert_eq!(unresolved.field, None);
        assert!(unresolved.problem.contains("did not answer in time"), "{unresolved}");
    }

    #[test]
    fn a_name_that_no_sentinel_knows_is_reported_before_silence() {
        let answers =
            [("t".to_owned(), Err(NoOpinion::Late)), ("u".to_owned(), Err(NoOpinion::Unknown))];
        assert_eq!(of("main", &answers).unwrap_err().field, Some("sentinelMasterName"));
    }
}
