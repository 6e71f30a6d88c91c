//! Cases, and their list, which is built theme by theme.

use std::{fmt, future::Future};

use futures_util::future::BoxFuture;

use crate::{feature::Feature, world::World};

/// What a store must declare or offer for a case to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing: the case applies to every store.
    Core,
    /// The store declares all of these; otherwise the case is ignored.
    Features(&'static [Feature]),
    /// The store does not declare this; otherwise the case is left out.
    Without(Feature),
    /// A second socket was given, otherwise the case is left out; and the store declares
    /// all of these, otherwise the case is ignored.
    TwoProcesses(&'static [Feature]),
    /// Like `TwoProcesses`, with a way to restart the store instead of the second socket.
    Restart(&'static [Feature]),
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
            Self::Restart(features) => write!(f, "restart, {}", join(features)),
        }
    }
}

/// A case as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseInfo {
    /// The theme, a colon, and a sentence with the one fact that the case checks. Unique,
    /// and stable across releases.
    pub name: String,
    /// What the case asks of the store.
    pub demand: Demand,
}

type Body = Box<dyn FnOnce(World) -> BoxFuture<'static, anyhow::Result<()>> + Send>;

/// A case and the code that runs it.
pub(crate) struct Case {
    pub(crate) info: CaseInfo,
    pub(crate) body: Body,
    /// Whether it must run alone, because it loads the store so much that other cases
    /// would see events in the wrong order.
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

    /// Makes the case that was added last run alone.
    pub(crate) fn alone(&mut self) {
        if let Some(case) = self.list.last_mut() {
            case.alone = true;
        }
    }

    pub(crate) fn into_list(self) -> Vec<Case> {
        self.list
    }

    /// Adds a case that applies to every store.
    pub(crate) fn core<F, Fut>(&mut self, sentence: impl fmt::Display, body: F)
    where
        F: FnOnce(World) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.add(Demand::Core, sentence, body);
    }

    /// Adds a case with a demand.
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
