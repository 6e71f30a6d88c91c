//! The parameters of a query.

use leasehold_lock::Violation;
use leasehold_net::inspection::given_limit;

use crate::api::query;

const NAMESPACE: &str = "namespace";

/// A parsed query: the segments of `namespace`, and parameters that are given once.
#[derive(Debug, Default)]
pub(super) struct Params {
    pub(super) namespace: Vec<String>,
    others: Vec<(&'static str, String)>,
}

impl Params {
    /// Reads a query that may have `namespace` and the parameters of `known`.
    pub(super) fn read(query: Option<&str>, known: &[&'static str]) -> Result<Self, Violation> {
        let mut params = Self::default();
        for pair in query::pairs(query.unwrap_or_default()) {
            if pair.name() == NAMESPACE {
                params.namespace.push(pair.value(NAMESPACE)?);
                continue;
            }
            let name = known.iter().find(|name| **name == pair.name()).ok_or_else(|| {
                query::unknown(pair.name(), &[&[NAMESPACE], known].concat().join(", "))
            })?;
            if params.find(name).is_some() {
                return Err(Violation::new(*name, "was given twice"));
            }
            params.others.push((name, pair.value(name)?));
        }
        Ok(params)
    }

    /// A text, empty where absent.
    pub(super) fn text(&self, name: &str) -> String {
        self.find(name).unwrap_or_default().to_owned()
    }

    /// A text, not empty if given: a script with an unset variable must not select all.
    pub(super) fn selecting_text(&self, name: &str) -> Result<String, Violation> {
        match self.find(name) {
            Some("") => {
                Err(Violation::new(name, "is empty; give it, or leave it out to mean all"))
            }
            text => Ok(text.unwrap_or_default().to_owned()),
        }
    }

    /// A boolean, false where absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Violation> {
        match self.find(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Violation::new(name, "must be true or false")),
        }
    }

    /// A number of items from 1 to 1,000, `None` where absent.
    pub(super) fn limit(&self, name: &str) -> Result<Option<i32>, Violation> {
        let Some(text) = self.find(name) else { return Ok(None) };
        let given =
            text.parse::<i32>().map_err(|_| Violation::new(name, "must be a whole number"))?;
        given_limit(name, given).map(Some)
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.others.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Params, Violation> {
        Params::read(Some(query), &["limit", "all", "reason"])
    }

    #[test]
    fn parameters_are_read_by_their_names() {
        let params = read("namespace=a&limit=7&namespace=b%2F&all=true&reason=x+y").unwrap();
        assert_eq!(params.namespace, ["a", "b/"]);
        assert_eq!(params.limit("limit"), Ok(Some(7)));
        assert_eq!(params.flag("all"), Ok(true));
        assert_eq!(params.text("reason"), "x y");
        assert_eq!(params.selecting_text("reason"), Ok("x y".to_owned()));
        let none = Params::read(None, &[]).unwrap();
        assert_eq!((none.limit("limit"), none.flag("all")), (Ok(None), Ok(false)));
    }

    #[test]
    fn an_unknown_a_repeated_and_a_bad_parameter_are_named() {
        assert_eq!(read("limits=1").unwrap_err().field, "limits");
        assert_eq!(read("limit=1&limit=1").unwrap_err().field, "limit");
        assert_eq!(read("reason=%FF").unwrap_err().field, "reason");
        assert_eq!(
            read("reason=").unwrap().selecting_text("reason").unwrap_err().field,
            "reason"
        );
        for bad in ["limit=", "limit=1.5", "limit=x", "limit=99999999999", "limit", "limit=0"] {
            assert_eq!(read(bad).unwrap().limit("limit").unwrap_err().field, "limit");
        }
        for bad in ["all=", "all=1", "all=True", "all"] {
            assert_eq!(read(bad).unwrap().flag("all").unwrap_err().field, "all");
        }
    }
}
