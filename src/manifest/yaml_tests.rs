//! YAML as a tree, equal to daprd's, and its limits.

use super::*;

fn json(text: &str) -> String {
    read(text, 1).unwrap().0.to_json()
}

#[test]
fn values_become_the_json_that_daprd_sees() {
    assert_eq!(
        json("b: [1.0, on, 'on', ~]\na: {x: <&>, 5: \"é\"}\n"),
        r#"{"a":{"5":"é","x":"\u003c\u0026\u003e"},"b":[1,true,"on",null]}"#
    );
    assert_eq!(json("a: |\n  1\n  2\nb: !!str 1\n"), r#"{"a":"1\n2\n","b":"1"}"#);
    assert_eq!(json("# nothing\n"), "null");
}

#[test]
fn anchors_merges_and_repeated_keys_are_resolved() {
    assert_eq!(
        json("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\nc: *x\n"),
        r#"{"a":{"k":1,"l":2},"b":{"k":3,"l":2},"c":{"k":1,"l":2}}"#
    );
    assert_eq!(json("a: 1\na: 2\n"), r#"{"a":2}"#);
}

#[test]
fn repeated_keys_are_noted_with_their_lines_and_merged_ones_are_not() {
    let noted = |text| read(text, 1).unwrap().1;
    assert_eq!(noted("a: 1\nb: {c: 1, c: 2}\na: 2\n"), [(2, "c".into()), (3, "a".into())]);
    assert_eq!(noted("a: &x {k: 1}\nb: {<<: *x, k: 3}\n"), []);
}

#[test]
fn a_key_is_found_whatever_its_case_the_exact_one_first() {
    let (node, _) = read("apiversion: a\nkind: b\nKIND: c\n", 1).unwrap();
    assert_eq!(node.get("apiVersion").unwrap().to_json(), r#""a""#);
    assert_eq!(node.get("kind").unwrap().to_json(), r#""b""#);
}

#[test]
fn invalid_yaml_is_reported_with_its_line_in_the_file() {
    for (text, line) in
        [("a: [1\n", 11), ("a: b: c\n", 10), ("x: 1\n\ty: 2\n", 11), ("a: *no\n", 10)]
    {
        let fault = read(text, 10).unwrap_err();
        assert!(fault.text.contains("is not YAML"), "{text:?}: {fault:?}");
        assert!(fault.line.is_some_and(|at| at.abs_diff(line) <= 1), "{text:?}: {fault:?}");
    }
}

#[test]
fn a_document_cannot_grow_beyond_its_limits() {
    let laughs: String = (1..9)
        .map(|level| {
            format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(","))
        })
        .collect();
    let fault = read(&format!("a0: &a0 x\n{laughs}"), 1).unwrap_err();
    assert!(fault.text.contains("aliases included"), "{fault:?}");
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1_000_000), "*a,".repeat(100));
    let fault = read(&long, 1).unwrap_err();
    assert!(fault.text.contains("bytes of text, aliases included"), "{fault:?}");
    let deep = read(&format!("{}{}", "[".repeat(200), "]".repeat(200)), 1).unwrap_err();
    assert!(deep.text.contains("deeper"), "{deep:?}");
}
