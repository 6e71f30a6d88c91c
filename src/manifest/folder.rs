//! The components of all folders that apply to an app.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tracing::warn;

use super::{
    component::Component,
    document,
    environment::Environment,
    fields::Field,
    problem::{Fault, Origin, Problem},
    yaml::{self, Value},
};

/// Longer files are refused. daprd accepts documents of up to 64 KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const FILES_MAX: usize = 10_000;

/// The folders of component YAML, and the environment that they are read for.
#[derive(Clone, Debug)]
pub struct Resources {
    /// The folders, read in this order. Files are read in the order of their names, and
    /// subfolders are ignored, like everything that is neither a regular file nor a link
    /// to one.
    pub folders: Vec<PathBuf>,
    /// The app, the namespace and the environment variables.
    pub environment: Environment,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Components of any type that are in scope and in the namespace, with unique names.
    pub components: Vec<Component>,
    /// Files and documents that were skipped because they could not be read.
    pub problems: Vec<Problem>,
    /// Components that were skipped because they are not for this app. Each text names the
    /// component, where it was read, and why.
    pub skipped: Vec<String>,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A folder could not be listed.
    #[error("the resources path {} could not be read: {error}{}", folder.display(), hint(folder))]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Documents cannot be read, or components have the same name. Lists every case.
    #[error("{}", .0.join("; "))]
    Documents(Vec<String>),
}

impl Resources {
    /// Reads all folders at a start, when a document that cannot be read is an error, because it
    /// may be needed.
    pub fn load_whole(&self) -> Result<Loaded, LoadError> {
        let loaded = self.load()?;
        if loaded.problems.is_empty() {
            return Ok(loaded);
        }
        Err(LoadError::Documents(loaded.problems.iter().map(ToString::to_string).collect()))
    }

    /// Reads all folders. Blocks on the file system.
    pub fn load(&self) -> Result<Loaded, LoadError> {
        let mut loaded = Loaded::default();
        for folder in &self.folders {
            let files = yaml_files(folder)
                .map_err(|error| LoadError::Folder { folder: folder.clone(), error })?;
            for file in files {
                let file = Arc::new(file);
                match read_text(&file) {
                    Ok(text) => {
                        let (components, problems) = read_file_text(&file, &text);
                        loaded.components.extend(components);
                        loaded.problems.extend(problems);
                    }
                    Err(why) => {
                        loaded.problems.push(Problem {
                            file,
                            document: None,
                            fault: Fault::from(why),
                        });
                    }
                }
            }
        }
        let read = std::mem::take(&mut loaded.components);
        loaded.components = self.applicable(read, &mut loaded.skipped)?;
        Ok(loaded)
    }

    /// The components of this namespace that are in scope. A name that is given twice in one
    /// namespace is an error even if the second component is out of scope.
    fn applicable(
        &self,
        all: Vec<Component>,
        skipped: &mut Vec<String>,
    ) -> Result<Vec<Component>, LoadError> {
        let mut kept: Vec<Component> = Vec::new();
        let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
        let mut duplicates = Vec::new();
        for component in all {
            let elsewhere = self.environment.namespace.as_ref().filter(|namespace| {
                !component.namespace.is_empty() && component.namespace != **namespace
            });
            if let Some(namespace) = elsewhere {
                skipped.push(format!(
                    "{component} ({}) is in the namespace {:?}, and NAMESPACE is {namespace:?}",
                    component.origin, component.namespace
                ));
                continue;
            }
            if let Some(at) = by_name.get(&component.name) {
                let first = &kept[*at];
                duplicates.push(format!(
                    "the component {component} ({}) has the same name as {first} ({}); rename one",
                    component.origin, first.origin
                ));
            } else if component.is_in_scope(self.environment.app_id.as_deref()) {
                by_name.insert(component.name.clone(), kept.len());
                kept.push(component);
            } else {
                skipped.push(format!(
                    "{component} ({}) has the scopes {:?}, and --app-id is {:?}",
                    component.origin,
                    component.scopes,
                    self.environment.app_id.as_deref().unwrap_or_default()
                ));
            }
        }
        if duplicates.is_empty() { Ok(kept) } else { Err(LoadError::Documents(duplicates)) }
    }
}

fn hint(folder: &Path) -> &'static str {
    if folder.is_file() { "; it is a file, give the folder that it is in" } else { "" }
}

fn yaml_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_yaml = path.extension().is_some_and(|extension| {
            extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml")
        });
        // A broken link is kept, and becomes a problem when it is read.
        if is_yaml && fs::metadata(&path).map_or(true, |file| file.is_file()) {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(io::Error::other(format!("it has more than {FILES_MAX} YAML files")));
        }
    }
    files.sort();
    Ok(files)
}

fn read_text(file: &Path) -> Result<String, String> {
    let opened = fs::File::open(file).map_err(|error| format!("cannot be read: {error}"))?;
    let mut text = String::new();
    opened
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is longer than {FILE_BYTES_MAX} bytes; split it"));
    }
    Ok(text)
}

/// The components of one file, and the problems of its other documents.
pub(crate) fn read_file_text(
    file: &Arc<PathBuf>,
    text: &str,
) -> (Vec<Component>, Vec<Problem>) {
    let (mut components, mut problems) = (Vec::new(), Vec::new());
    for (at, document) in
        document::split(text.trim_start_matches('\u{feff}')).iter().enumerate()
    {
        let origin = Origin::new(Arc::clone(file), at + 1);
        match read_document(document, origin) {
            Ok(component) => components.extend(component),
            Err(fault) => {
                problems.push(Problem {
                    file: Arc::clone(file),
                    document: Some(at + 1),
                    fault,
                });
            }
        }
    }
    (components, problems)
}

fn read_document(
    document: &document::Document<'_>,
    origin: Origin,
) -> Result<Option<Component>, Fault> {
    let (root, repeated) = yaml::read(document.text, document.line)?;
    if matches!(root.value, Value::Null) {
        return Ok(None);
    }
    for (line, key) in repeated {
        warn!(%origin, line, "the key {key:?} stands twice in one map; its last value counts");
    }
    Component::read(&Field::root(&root), origin)
}
