//! Histories in files.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::Path,
};

use anyhow::{Context, bail};
use parking_lot::Mutex;

use super::{Event, Invocation, Operation};

/// The file of a client process. Each event is one write of a whole line, so
/// that a killed process loses no recorded event.
#[derive(Debug)]
pub struct Log(Mutex<File>);

impl Log {
    /// Creates the file, or appends to it.
    pub fn append(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("opening the history {}", path.display()))?;
        Ok(Self(Mutex::new(file)))
    }

    /// Records an event.
    pub fn record(&self, event: &Event) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.0.lock().write_all(&line)?;
        Ok(())
    }
}

/// Reads every `history-*.jsonl` of a folder.
pub fn read_folder(folder: &Path) -> anyhow::Result<Vec<Operation>> {
    let mut operations = Vec::new();
    for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("history-") && name.ends_with(".jsonl") {
            read(&path, &mut operations)?;
        }
    }
    operations.sort_by_key(Operation::invoked_ns);
    Ok(operations)
}

fn read(path: &Path, into: &mut Vec<Operation>) -> anyhow::Result<()> {
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut lines = BufReader::new(File::open(path)?).split(b'\n').enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line = line?;
        let event = match serde_json::from_slice(&line) {
            Ok(event) => event,
            // A process was killed while it wrote its last line.
            Err(_) if lines.peek().is_none() => break,
            Err(error) => bail!("{}:{}: {error}", path.display(), number + 1),
        };
        match event {
            Event::Invoke(invocation) => {
                let Invocation { id, .. } = invocation;
                places.insert(id, into.len());
                into.push(Operation { invocation, completion: None });
            }
            Event::Complete { id, at_ns, outcome } => match places.get(&id) {
                Some(&place) => into[place].completion = Some((at_ns, outcome)),
                None => bail!("{}:{}: call {id} was not invoked", path.display(), number + 1),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Outcome};

    fn invoke(id: u64) -> Event {
        Event::Invoke(Invocation {
            id,
            at_ns: id,
            process: 1,
            client: 1,
            via: None,
            resource: "r".into(),
            call: Call::Force,
        })
    }

    #[test]
    fn what_a_killed_process_left_is_read_up_to_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history-1.jsonl");
        let log = Log::append(&path).unwrap();
        log.record(&invoke(1)).unwrap();
        log.record(&Event::Complete { id: 1, at_ns: 5, outcome: Outcome::Unlocked }).unwrap();
        log.record(&invoke(2)).unwrap();
        OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"event\":\"comp")
            .unwrap();

        let operations = read_folder(folder.path()).unwrap();

        let completions: Vec<_> = operations.into_iter().map(|op| op.completion).collect();
        assert_eq!(completions, [Some((5, Outcome::Unlocked)), None]);
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history-1.jsonl");
        std::fs::write(&path, "{\n{}\n").unwrap();
        assert!(read_folder(folder.path()).unwrap_err().to_string().contains(":1:"));
    }
}
