//! What a case is, and the list of all of them.

use std::{fmt, future::Future};

use futures_util::future::BoxFuture;

use crate::{cases, feature::Feature, world::World};

/// What a case asks of the store before it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing: it binds every store.
    Core,
    /// That the store declares all of these; ignored where it does not.
    Features(&'static [Feature]),
    /// That the store does not declare this; left out where it does.
    Without(Feature),
    /// A second socket, and that the store declares all of these; left out
    /// where the socket is not given.
    TwoProcesses(&'static [Feature]),
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |features: &[Feature]| {
            features.iter().map(|feature| feature.name()).collect::<Vec<_>>().join(" + ")
        };
        match self {
            Self::Core => f.write_str("core"),
            Self::Features(features) => f.write_str(&join(features)),
            Self::Without(feature) => write!(f, "without {feature}"),
            Self::TwoProcesses([]) => f.write_str("two processes"),
            Self::TwoProcesses(features) => write!(f, "two processes, {}", join(features)),
        }
    }
}

/// A case as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseInfo {
    /// A sentence that says the one fact that the case checks, after its
    /// theme and a colon. Unique, and stable across releases.
    pub name: String,
    /// What the case asks of the store.
    pub demand: Demand,
}

/// Every case, in the order of the run, without connecting to anything.
#[must_use]
pub fn catalogue() -> Vec<CaseInfo> {
    cases::all().into_iter().map(|case| case.info).collect()
}

type Body = Box<dyn FnOnce(World) -> BoxFuture<'static, anyhow::Result<()>> + Send>;

/// A case with what it does.
pub(crate) struct Case {
    pub(crate) info: CaseInfo,
    pub(crate) body: Body,
    /// Whether no other case may run at the same time: this one loads the
    /// store so much that others would misjudge its order of events.
    pub(crate) alone: bool,
}

/// The list that each theme adds its cases to.
pub(crate) struct Cases {
    theme: &'static str,
    list: Vec<Case>,
}

impl Cases {
    pub(crate) fn new() -> Self {
        Self { theme: "", list: Vec::new() }
    }

    /// Adds the cases of one theme.
    pub(crate) fn theme(&mut self, theme: &'static str, tests: fn(&mut Self)) {
        self.theme = theme;
        tests(self);
    }

    /// Lets the case added last run alone.
    pub(crate) fn alone(&mut self) {
        if let Some(case) = self.list.last_mut() {
            case.alone = true;
        }
    }

    pub(crate) fn into_list(self) -> Vec<Case> {
        self.list
    }

    /// Adds a case that binds every store.
    pub(crate) fn core<F, Fut>(&mut self, sentence: impl fmt::Display, body: F)
    where
        F: FnOnce(World) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.add(Demand::Core, sentence, body);
    }

    /// Adds a case that asks for more than the core.
    pub(crate) fn add<F, Fut>(&mut self, demand: Demand, sentence: impl fmt::Display, body: F)
    where
        F: FnOnce(World) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let name = format!("{}: {sentence}", self.theme);
        let body: Body = Box::new(move |world| Box::pin(body(world)));
        self.list.push(Case { info: CaseInfo { name, demand }, body, alone: false });
    }
}
