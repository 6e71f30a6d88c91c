//! The store under test.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
};

use tokio::sync::RwLock;
use tonic::metadata::{Ascii, MetadataValue};

use crate::{
    connection::Connection, feature::Feature, lacks::Lacks, restart::Restart, stop::Stop,
};

/// The store under test, and the state that all cases share.
pub(crate) struct Subject {
    pub(crate) socket: PathBuf,
    pub(crate) second_socket: Option<PathBuf>,
    pub(crate) restart: Option<Restart>,
    pub(crate) stop: Stop,
    pub(crate) connection: Connection,
    pub(crate) instance_name: String,
    pub(crate) instance: MetadataValue<Ascii>,
    pub(crate) properties: HashMap<String, String>,
    pub(crate) features: BTreeSet<Feature>,
    /// Every name that the store declares, also those that the suite does not know.
    pub(crate) declared: Vec<String>,
    pub(crate) lacks: Lacks,
    /// The prefix of every resource of this run.
    pub(crate) run: String,
    /// Read-locked by every case that runs, write-locked by a case that runs alone.
    pub(crate) running: RwLock<()>,
}
