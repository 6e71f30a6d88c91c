//! What one node of a Cluster says of all: the answer to `CLUSTER NODES`.

use std::{fmt, sync::Arc};

/// How many nodes are known.
pub(super) const NODES_MAX: usize = 1000;

/// Where a node is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Address {
    /// Reads `host:port`. An empty host means the one that was asked.
    pub(super) fn read(text: &str, asked: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = if matches!(host, "" | "?") { asked } else { host };
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self { host: host.to_owned(), port })
    }
}

/// A slot that is moved, as a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub(super) slot: u16,
    /// Whether it is moved away.
    pub(super) is_source: bool,
}

/// What one node says of all.
pub(super) struct View {
    pub(super) lines: Vec<Line>,
}

/// What it says of one of them.
pub(super) struct Line {
    pub(super) id: Arc<str>,
    pub(super) address: Arc<Address>,
    pub(super) names: [Option<Address>; 2],
    /// Whether it is about the node that says it.
    pub(super) is_own: bool,
    /// Whether it is no master, or was found to be down.
    pub(super) has_failed: bool,
    pub(super) epoch: u64,
    pub(super) ranges: Vec<(u16, u16)>,
    pub(super) opens: Vec<Open>,
}

impl View {
    /// Reads the answer to `CLUSTER NODES` of a node at this host. Nodes are called by their host
    /// names if `by_name`, as certificates do.
    ///
    /// ```text
    /// ID 10.0.0.1:6379@16379,host myself,master - 0 0 EPOCH connected 0-99 101 [100->-ID]
    /// ```
    pub(super) fn read(text: &str, asked: &str, by_name: bool) -> Self {
        let read = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let (id, address, flags) = (words.next()?, words.next()?, words.next()?);
            let has_flag = |any: &[&str]| flags.split(',').any(|flag| any.contains(&flag));
            let (endpoint, rest) = address.split_once('@')?;
            let address = Address::read(endpoint, asked)?;
            let mut announced = rest.split(',').skip(1);
            let name = announced.next().filter(|name| !name.is_empty() && !name.contains('='));
            let named = name.map(|name| Address { host: name.to_owned(), ..address.clone() });
            let called =
                if by_name { named.as_ref() } else { None }.unwrap_or(&address).clone();
            let epoch = words.nth(3)?.parse().ok()?;
            let words: Vec<_> = words.skip(1).collect();
            let opens = words.iter().filter_map(|word| {
                let (slot, way) = word.strip_prefix('[')?.split_once('-')?;
                Some(Open { slot: slot.parse().ok()?, is_source: way.starts_with('>') })
            });
            let opens = opens.collect();
            let ranges = words.iter().filter_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((*range, *range));
                Some((first.parse().ok()?, last.parse().ok()?))
            });
            Some(Line {
                id: id.into(),
                address: Arc::new(called),
                names: [Some(address), named],
                is_own: has_flag(&["myself"]),
                has_failed: has_flag(&["fail", "slave", "noaddr"]),
                epoch,
                ranges: ranges.collect(),
                opens,
            })
        };
        Self { lines: text.lines().take(NODES_MAX).filter_map(read).collect() }
    }
}
