use leasehold_lock::Violation;

use super::*;

fn read_all(items: &[(&str, &str)]) -> Result<Setup, Vec<Violation>> {
    let mut properties =
        Properties::new(items.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    let servers = read(&mut properties);
    assert_eq!(properties.warnings(), Vec::<String>::new());
    properties.finish().map(|()| servers.unwrap())
}

fn refused(items: &[(&str, &str)]) -> Vec<String> {
    let mut fields: Vec<_> =
        read_all(items).unwrap_err().into_iter().map(|violation| violation.field).collect();
    fields.sort();
    fields
}

fn reached(items: &[(&str, &str)]) -> String {
    match read_all(items).unwrap() {
        Setup::Node(client) => client.get_connection_info().addr().to_string(),
        other => panic!("a single server was asked for: {other:?}"),
    }
}

const MASTER: (&str, &str) = ("sentinelMasterName", "main");

fn sentinels(items: &[(&str, &str)]) -> Vec<String> {
    match read_all(&[items, &[MASTER]].concat()).unwrap() {
        Setup::Sentinel(setup) => {
            assert_eq!(setup.master_name, "main");
            let address = |client: &Client| client.get_connection_info().addr().to_string();
            setup.sentinels.iter().map(address).collect()
        }
        other => panic!("Sentinels were asked for: {other:?}"),
    }
}

#[test]
fn the_port_is_in_the_host_or_beside_it_or_6379() {
    assert_eq!(reached(&[("redisHost", "h:7000")]), "h:7000");
    assert_eq!(reached(&[("redisHost", "h"), ("redisPort", "7000")]), "h:7000");
    assert_eq!(reached(&[("redisHost", "h:7000"), ("redisPort", "7000")]), "h:7000");
    assert_eq!(reached(&[("redisHost", "h")]), "h:6379");
    assert_eq!(reached(&[("redisHost", "[::1]:7000")]), "::1:7000");
    assert_eq!(reached(&[("redisHost", "::1")]), "::1:6379");
    assert_eq!(refused(&[("redisHost", "h:7000"), ("redisPort", "7001")]), ["redisPort"]);
}

#[test]
fn an_invalid_host_is_refused() {
    for bad in ["h:port", ":7000", "[::1", "redis://h", "a:1,b:2"] {
        assert_eq!(refused(&[("redisHost", bad)]), ["redisHost"], "{bad}");
    }
    assert_eq!(refused(&[]), ["redisHost"]);
}

#[test]
fn a_url_is_refused_by_its_key_without_repeating_its_password() {
    for (url, shown) in [
        ("redis://h:6379", "\"h:6379\""),
        ("rediss://me:hunter2@h:6380/1", "\"h:6380\" alone, enableTLS: true"),
    ] {
        let violations = read_all(&[("redisHost", url)]).unwrap_err();
        assert_eq!(violations[0].field, "redisHost");
        assert!(violations[0].problem.contains(shown), "{violations:?}");
        assert!(!violations[0].problem.contains("hunter2"), "{violations:?}");
    }
}

#[test]
fn failover_or_the_type_asks_for_sentinels() {
    for mode in [
        &[("failover", "true")][..],
        &[("failover", "true"), ("redisType", "node")],
        &[("failover", "true"), ("redisType", "sentinel")],
        &[("redisType", "sentinel")],
    ] {
        assert_eq!(sentinels(&[mode, &[("redisHost", "h:1")]].concat()), ["h:1"], "{mode:?}");
    }
    assert_eq!(reached(&[("failover", "false"), ("redisHost", "h:1")]), "h:1");
}

#[test]
fn sentinels_are_listed_with_or_without_their_ports() {
    let failover = ("failover", "true");
    let list = ("redisHost", "a:1, b ,[::1]:2,a:1");
    assert_eq!(sentinels(&[failover, list]), ["a:1", "b:26379", "::1:2"]);
    assert_eq!(
        sentinels(&[failover, ("redisHost", "a,b"), ("redisPort", "7")]),
        ["a:7", "b:7"]
    );
    for (host, field) in
        [("a,unix:/s", "redisHost"), ("redis://a", "redisHost"), (",", "redisHost")]
    {
        assert_eq!(refused(&[failover, MASTER, ("redisHost", host)]), [field], "{host}");
    }
}

#[test]
fn contradictory_modes_are_refused_by_both_keys() {
    let host = ("redisHost", "h");
    for items in [
        [host, MASTER, ("redisType", "sentinel"), ("failover", "false")],
        [host, MASTER, ("redisType", "cluster"), ("failover", "true")],
    ] {
        assert_eq!(refused(&items), ["failover", "redisType"], "{items:?}");
    }
}

#[test]
fn keys_for_sentinels_are_refused_without_them() {
    assert_eq!(
        refused(&[("redisHost", "h"), MASTER, ("sentinelPassword", "hunter2")]),
        ["sentinelMasterName", "sentinelPassword"]
    );
}

#[test]
fn what_sentinels_need_is_asked_for_all_at_once() {
    assert_eq!(
        refused(&[("failover", "true"), ("sentinelUsername", "me")]),
        ["redisHost", "sentinelMasterName", "sentinelPassword"]
    );
}

#[test]
fn the_nodes_of_a_cluster_are_listed() {
    let items = [
        ("redisType", "cluster"),
        ("redisHost", "a,b:7"),
        ("redisPassword", "p"),
        ("redisDB", "0"),
    ];
    let Setup::Cluster(setup) = read_all(&items).unwrap() else { panic!() };
    let address = |client: &Client| client.get_connection_info().addr().to_string();
    let nodes: Vec<_> = setup.nodes.iter().map(address).collect();
    assert_eq!(nodes, ["a:6379", "b:7"]);
    assert_eq!(setup.node.redis_settings().password(), Some("p"));
}

#[test]
fn a_cluster_has_one_database_and_no_sentinels() {
    let cluster = [("redisType", "cluster"), ("redisHost", "h")];
    assert_eq!(refused(&[&cluster[..], &[("redisDB", "1")]].concat()), ["redisDB"]);
    assert_eq!(refused(&[&cluster[..], &[MASTER]].concat()), ["sentinelMasterName"]);
    assert_eq!(refused(&[("redisType", "cluster"), ("redisHost", "unix:/s")]), ["redisHost"]);
    assert_eq!(refused(&[("redisType", "clusters"), ("redisHost", "h")]), ["redisType"]);
}

#[test]
fn the_credentials_of_sentinels_are_not_those_of_the_master() {
    let items = [
        ("redisHost", "h"),
        ("failover", "true"),
        MASTER,
        ("redisPassword", "one"),
        ("redisDB", "3"),
        ("sentinelUsername", "me"),
        ("sentinelPassword", "two"),
    ];
    let Setup::Sentinel(setup) = read_all(&items).unwrap() else { panic!() };
    let sentinel = setup.sentinels[0].get_connection_info().redis_settings();
    assert_eq!((sentinel.username(), sentinel.password()), (Some("me"), Some("two")));
    assert_eq!(sentinel.db(), 0);
    let master = setup.master.redis_settings();
    assert_eq!((master.username(), master.password()), (None, Some("one")));
    assert_eq!(master.db(), 3);
    assert!(!format!("{setup:?}").contains("two"));
}

#[test]
fn every_key_of_the_built_in_store_is_known() {
    let mut items = vec![("redisHost", "h")];
    items.extend(WITHOUT_EFFECT.map(|key| (key, "1")));
    assert!(read_all(&items).is_ok());
}

#[test]
fn half_a_client_certificate_is_refused() {
    let host = ("redisHost", "h");
    assert_eq!(refused(&[host, ("enableTLS", "true"), ("clientCert", "c")]), ["clientKey"]);
    assert_eq!(refused(&[host, ("enableTLS", "true"), ("clientKey", "k")]), ["clientCert"]);
    assert_eq!(
        refused(&[host, ("enableTLS", "true"), ("clientKey", "k"), ("clientCert", "c")]),
        ["clientCert"]
    );
}

#[test]
fn a_password_is_in_no_debug_text() {
    let client = read_all(&[("redisHost", "h"), ("redisPassword", "hunter2")]).unwrap();
    assert!(!format!("{client:?}").contains("hunter2"));
}
