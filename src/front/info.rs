//! The answers to `HELLO` and `INFO`.

use super::reply::{Protocol, Reply};

/// The version of Redis that a front reports. Clients choose their commands by it.
const REDIS_VERSION: &str = "7.2.4";

/// The answer to `HELLO`.
pub(super) fn hello(protocol: Protocol, id: u64) -> Reply {
    Reply::Map(vec![
        ("server", Reply::text("redis")),
        ("version", Reply::text(REDIS_VERSION)),
        ("proto", Reply::Integer(protocol.number())),
        ("id", Reply::Integer(id.cast_signed())),
        ("mode", Reply::text("standalone")),
        ("role", Reply::text("master")),
        ("modules", Reply::Array(Vec::new())),
    ])
}

/// The answer to `INFO`: the requested sections that a front has. It reports no replicas,
/// because daprd's built-in lock component refuses a server with replicas.
pub(super) fn text(asked: &[String]) -> String {
    let server = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:leasehold\r\n\
         leasehold_version:{}\r\nprocess_id:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    );
    let sections = [
        ("server", server.as_str()),
        ("persistence", "# Persistence\r\nloading:0\r\n"),
        ("replication", "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"),
        ("cluster", "# Cluster\r\ncluster_enabled:0\r\n"),
    ];
    let is_asked = |name: &str| {
        asked.is_empty()
            || asked.iter().any(|asked| {
                asked == name || matches!(asked.as_str(), "all" | "default" | "everything")
            })
    };
    let asked: Vec<_> =
        sections.iter().filter(|(name, _)| is_asked(name)).map(|(_, text)| *text).collect();
    asked.join("\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_requested_sections_are_reported() {
        let text_of_info = text(&["replication".to_owned()]);
        assert_eq!(text_of_info, "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
        assert_eq!(text(&["memory".to_owned()]), "");
        for all in [text(&[]), text(&["everything".to_owned()])] {
            assert!(all.contains("redis_version:7.") && all.contains("role:master"), "{all}");
        }
    }
}
