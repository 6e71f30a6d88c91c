//! Watches a Redis for keys that a function touches and did not declare: proxies and servers of a
//! Cluster refuse those.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{Shutdown, TcpStream},
    thread::JoinHandle,
};

/// A connection with MONITOR.
pub struct Monitor {
    stream: TcpStream,
    reader: JoinHandle<Seen>,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// How many commands of functions.
    pub commands: usize,
    /// The commands that touched a key that the function did not declare.
    pub undeclared: Vec<String>,
}

impl Monitor {
    /// Begins to watch.
    pub fn start(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let reader = std::thread::spawn(move || {
            let (mut seen, mut declared) = (Seen::default(), Vec::new());
            // After the shutdown the rest is still read.
            for line in lines.map_while(Result::ok) {
                let words = words(&line);
                if line.contains(" lua] ") {
                    seen.commands += 1;
                    if !keys(&words).iter().all(|key| declared.contains(key)) {
                        seen.undeclared.push(line);
                    }
                } else if matches!(words.first().map(String::as_str), Some("FCALL" | "EVALSHA"))
                {
                    let count = words[2].parse().unwrap();
                    declared = words[3..].iter().take(count).cloned().collect();
                }
            }
            seen
        });
        Self { stream, reader }
    }

    /// Ends, and returns what was seen.
    pub fn stop(self) -> Seen {
        // The server may have ended before.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.reader.join().unwrap()
    }
}

/// The keys of a command that functions use.
fn keys(words: &[String]) -> &[String] {
    match words[0].to_uppercase().as_str() {
        "TIME" | "PUBLISH" | "PUBSUB" | "SCAN" => &[],
        "MGET" | "DEL" | "UNLINK" | "EXISTS" => &words[1..],
        _ => &words[1..2],
    }
}

/// The quoted words of a line, as they are escaped there.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_escaped) = (Vec::new(), None::<String>, false);
    for letter in line.chars() {
        match (&mut word, letter) {
            (Some(_), '"') if !is_escaped => words.extend(word.take()),
            (Some(text), _) => {
                text.push(letter);
                is_escaped = letter == '\\' && !is_escaped;
            }
            (None, '"') => word = Some(String::new()),
            (None, _) => {}
        }
    }
    words
}
