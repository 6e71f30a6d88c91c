use proptest::prelude::*;

use super::*;

const NAME: &str = "([%/a-z25Fé]|%2F|%25){1,12}";

fn resource(id: &str) -> ResourceId {
    ResourceId::new(id).unwrap()
}

proptest! {
    /// Trap: etcd 29
    #[test]
    fn two_resources_never_share_a_key_or_a_range(a in NAME, other in NAME, how in 0..4) {
        // Chance alone hardly ever finds the name that another is escaped to.
        let b = match how {
            0 => a.replace('/', "%2F"),
            1 => a.replace('%', "%25"),
            2 => a.replace("%2F", "/"),
            _ => other,
        };
        let keys = Keys::new("/locks");
        let (ka, kb) = (keys.resource(&resource(&a)), keys.resource(&resource(&b)));
        prop_assert_eq!(a == b, ka == kb);
        if a != b {
            prop_assert!(!ka.starts_with(&kb) && !kb.starts_with(&ka));
            let waiter = EntryId { session: "s".into(), seq: 1, shared: false };
            let entry = keys.entry(&resource(&a), &waiter);
            let range = kb.as_bytes()..&*range_end(&kb);
            prop_assert!(!range.contains(&entry.as_bytes()));
        }
    }

    /// Trap: etcd 38
    #[test]
    fn two_prefixes_never_share_a_key_or_a_range(
        outer in "(/?[rsq]|/locks){0,3}",
        deeper in "(/[rsqh]){1,3}",
        a in "[rsqh/]{1,3}",
        b in "[rsqh/]{1,3}",
    ) {
        let inner = format!("{outer}{deeper}");
        prop_assume!(is_prefix(&outer) && is_prefix(&inner));
        let (outer, inner) = (Keys::new(&outer), Keys::new(&inner));
        let (a, b) = (resource(&a), resource(&b));
        let entry = EntryId { session: "s.0".into(), seq: 1, shared: true };
        let of_inner = [inner.holder(&b), inner.entry(&b, &entry), inner.session("s.0")];
        let range = outer.resource(&a);
        for key in of_inner {
            prop_assert!(!key.starts_with(&range), "{key} lies in {range}");
            prop_assert_ne!(&key, &outer.session("s.0"));
        }
        prop_assert!(!outer.holder(&a).starts_with(&inner.resource(&b)));
    }

    /// Trap: etcd 29
    #[test]
    fn the_range_of_a_prefix_has_the_keys_of_names_that_begin_so(
        name in NAME,
        prefix in "([%/a-c25Fé]|%2F|%25){0,3}",
        cut in 0usize..12,
        is_cut: bool,
    ) {
        let keys = Keys::new("/locks");
        let prefix = if is_cut { name.chars().take(cut).collect() } else { prefix };
        let range = keys.named(&prefix);
        let key = keys.holder(&resource(&name));
        let is_in = (range.as_bytes()..range_end(&range).as_slice()).contains(&key.as_bytes());
        prop_assert_eq!(is_in, name.starts_with(&prefix), "{} {}", name, prefix);
    }

    #[test]
    fn the_resource_of_a_key_is_read_back(name in NAME, shared: bool) {
        let (keys, id) = (Keys::new("/locks"), resource(&name));
        let entry = EntryId { session: "s.0".into(), seq: 1, shared };
        let key = keys.entry(&id, &entry).into_bytes();
        prop_assert_eq!(keys.read(&key), Some((id.clone(), Part::Entry(entry))));
        let behind = keys.behind(&key);
        prop_assert_eq!(&behind, &range_end(&keys.resource(&id)));
    }

    #[test]
    fn a_waiters_key_is_read_back(
        id in "\\PC{1,20}",
        session in "[0-9a-f-]{1,20}",
        seq: u64,
        shared: bool,
    ) {
        let keys = Keys::new("p");
        let Ok(resource) = ResourceId::new(&id) else { return Ok(()) };
        let entry = EntryId { session, seq, shared };
        let key = keys.entry(&resource, &entry);
        prop_assert_eq!(keys.part(&resource, key.as_bytes()), Part::Entry(entry));
    }
}

#[test]
fn the_prefix_may_be_empty_and_its_last_slash_makes_no_difference() {
    assert_eq!(Keys::new("").holder(&resource("a/b")), "r/a%2Fb/h");
    assert_eq!(Keys::new("/x/").holder(&resource("a")), Keys::new("/x").holder(&resource("a")));
}

fn shared(lock_id: &str, request: &str) -> GrantKeys {
    let grant = GrantName {
        mode: Mode::Shared,
        lock_id: LockId::new(lock_id).unwrap(),
        request: RequestId::new(request).unwrap(),
    };
    Keys::new("p").grant(&resource("a"), &grant)
}

#[test]
fn a_shared_grant_is_found_by_its_lock_id_and_its_request() {
    let (keys, grant) = (Keys::new("p"), shared("mine", "secret"));
    assert_ne!(grant.record(), shared("yours", "").record());
    let (request, value) = grant.shared.clone().unwrap().request.unwrap();
    assert_eq!(keys.requested(&resource("a"), value.as_bytes()).unwrap(), grant.record());
    assert!(request.starts_with("p/r/a/i/") && !request.contains("secret"));
    assert!(!grant.record().contains("mine"));
}

#[test]
fn the_range_of_the_grants_has_no_other_keys() {
    let (keys, id) = (Keys::new("p"), resource("a"));
    let (first, grant) = (keys.holder(&id), shared("mine", "secret"));
    let range = first.as_bytes()..&*range_end(&first);
    assert!(range.contains(&first.as_bytes()) && range.contains(&grant.record().as_bytes()));
    let entry = EntryId { session: "s".into(), seq: 1, shared: true };
    let others = [grant.request().unwrap().to_owned(), keys.entry(&id, &entry)];
    assert!(others.iter().all(|key| !range.contains(&key.as_bytes())));
}

#[test]
fn any_key_in_the_range_of_the_grants_is_a_readers() {
    let keys = Keys::new("p");
    for key in [&b"p/r/a/h/"[..], b"p/r/a/h/nonsense", b"p/r/a/hx", b"p/r/a/h/\xff"] {
        assert!(matches!(keys.part(&resource("a"), key), Part::Reader(_)), "{key:?}");
    }
    assert_eq!(keys.part(&resource("a"), b"p/r/a/h"), Part::Holder);
}

#[test]
fn a_name_that_is_not_written_so_is_no_resource() {
    let keys = Keys::new("p");
    for key in ["p/r/a%2f/h", "p/r/a%/h", "p/r/%41/h", "p/r//h", "p/s/a", "q/r/a/h", "p/r"] {
        assert_eq!(keys.read(key.as_bytes()), None, "{key}");
    }
    assert_eq!(keys.read(b"p/r/\xff/h"), None);
    assert_eq!(keys.read(b"p/r/a"), Some((resource("a"), Part::Other)));
}

#[test]
fn behind_a_foreign_key_lies_the_next_name() {
    let keys = Keys::new("p");
    for (key, behind) in [
        (&b"p/r/x%zz/deep/er"[..], &b"p/r/x%zz0"[..]),
        (b"p/r/\xff/h", b"p/r/\xff0"),
        (b"p/r/plain", b"p/r/plain\0"),
    ] {
        assert_eq!(keys.behind(key), behind);
    }
}

#[test]
fn a_foreign_key_is_neither_holder_nor_waiter() {
    let keys = Keys::new("p");
    for foreign in [
        "p/r/a/q/nonsense",
        "p/r/a/q/s-zz",
        "p/r/a/x",
        "p/r/b/h",
        // A waiter's place, but for how its number is written.
        "p/r/a/q/s-1f",
        "p/r/a/q/s-+00000000000001f",
        "p/r/a/q/s-000000000000001F",
        "p/r/a/q/s-000000000000001fss",
        "p/r/a/q/s-00000000000001fs",
        "p/r/a/i/0",
    ] {
        let part = keys.part(&resource("a"), foreign.as_bytes());
        assert_eq!(part, Part::Other, "{foreign}");
    }
}
