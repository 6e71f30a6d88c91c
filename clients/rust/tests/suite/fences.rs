//! The fence of the README: its SQL text, in SQLite. This crate has no code for fences.

use std::{process::Command, sync::Arc};

use crate::{stage::Backend, support::PATIENCE};

const README: &str = include_str!("../../README.md");

/// The SQL blocks of the README: the table, and the guard.
fn blocks() -> Vec<&'static str> {
    let parts = README.split("```sql\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap()).collect()
}

/// Runs statements in the database and returns what they print.
fn sqlite(database: &std::path::Path, statements: &str) -> String {
    let output = Command::new("sqlite3")
        .args(["-bail".as_ref(), database.as_os_str(), statements.as_ref()])
        .output()
        .expect("sqlite3 is not installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) async fn a_stale_token_is_refused_by_the_sql_of_the_readme(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("orders.db");
    let blocks = blocks();
    let [table, guard, ..] = *blocks else { panic!("the README has no SQL") };
    sqlite(&database, &format!("{table} CREATE TABLE orders (paid_by INTEGER);"));

    let token = async || {
        let lock = locks.lock("fenced").wait(PATIENCE).acquire().await.unwrap();
        lock.unlock().await.unwrap();
        lock.token()
    };
    // The guard, then how many rows it changed: that number decides about the rest.
    let admitted = |token: i64| {
        let guard = guard.replace("$1", "'lockstore||fenced'");
        let guard = guard.replace("$2", &token.to_string());
        sqlite(&database, &format!("{guard} SELECT changes();")) == "1"
    };
    let write =
        |token: i64| sqlite(&database, &format!("INSERT INTO orders VALUES ({token});"));
    let (stale, newer) = (token().await, token().await);
    for _ in 0..2 {
        assert!(admitted(newer), "the holder's first write, and its second");
        write(newer);
    }
    assert!(!admitted(stale), "the stale writer loses");
    let last = "SELECT paid_by FROM orders ORDER BY rowid DESC LIMIT 1;";
    assert_eq!(sqlite(&database, last), newer.to_string());
    // Without the fence its update wins.
    write(stale);
    assert_eq!(sqlite(&database, last), stale.to_string());
}
