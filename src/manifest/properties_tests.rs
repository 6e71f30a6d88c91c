//! Properties: values, references and templates.

use std::{path::PathBuf, sync::Arc};

use uuid::Uuid;

use super::*;
use crate::{folder::read_file_text, problem::Origin};

/// Secret stores as name → secret → keys, which count look-ups.
#[derive(Default)]
struct Fake {
    asked: std::sync::Mutex<Vec<(String, String, String)>>,
}

#[async_trait]
impl Secrets for Fake {
    async fn secret(
        &self,
        store: &str,
        name: &str,
        namespace: &str,
    ) -> Result<BTreeMap<String, String>, SecretError> {
        let asked = (store.to_owned(), name.to_owned(), namespace.to_owned());
        self.asked.lock().unwrap().push(asked);
        match name {
            "redis" => Ok([("password", "hunter2"), ("redis", "own"), ("empty", "")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()),
            _ => Err(SecretError {
                why: "ERR_SECRET_GET: no such secret".to_owned(),
                may_pass: true,
            }),
        }
    }
}

fn component(items: &str) -> Component {
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: s, namespace: dev}}\n\
         auth: {{secretStore: vault}}\nspec: {{type: lock.redis, metadata: {items}}}"
    );
    let file = Arc::new(PathBuf::from("s.yaml"));
    let (mut components, problems) = read_file_text(&file, &text);
    assert!(problems.is_empty(), "{problems:?}");
    components.remove(0)
}

fn environment() -> Environment {
    Environment::with_env(Some("app1"), |name| match name {
        "PLAIN" => Some("plain".to_owned()),
        "QUOTED" => Some("\"a\\nb\"".to_owned()),
        "NAMESPACE" => Some("prod".to_owned()),
        _ => None,
    })
}

async fn value(item: &str) -> Result<String, String> {
    let component = component(&format!("[{{name: k, {item}}}]"));
    let properties = component.properties(&environment(), &Fake::default()).await;
    properties.map(|all| all["k"].clone()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn values_of_every_json_type_are_texts() {
    for (yaml, text) in [
        ("value: localhost:6379", "localhost:6379"),
        ("value: 'on'", "on"),
        ("value: on", "true"),
        ("value: 15", "15"),
        ("value: [1, 'a']", r#"[1,"a"]"#),
        ("value: {b: 1, a: x}", r#"{"a":"x","b":1}"#),
        ("value: ", ""),
        ("value: \"with \\\"quotes\\\"\"", "with \"quotes\""),
        ("value: ''", ""),
    ] {
        assert_eq!(value(yaml).await.as_deref(), Ok(text), "{yaml}");
    }
}

#[tokio::test]
async fn templates_are_filled_in() {
    assert_eq!(value("value: '{appID}/{namespace}'").await.unwrap(), "app1/prod.app1");
    let uuids = value("value: '{uuid} {uuid}'").await.unwrap();
    let (one, two) = uuids.split_once(' ').unwrap();
    assert!(one != two && Uuid::parse_str(one).is_ok() && Uuid::parse_str(two).is_ok());
    let component = component("[{name: k, value: '{appID}'}]");
    let mut for_all = environment();
    for_all.app_id = None;
    let error = component.properties(&for_all, &Fake::default()).await.unwrap_err();
    assert!(error.to_string().contains("app's ID"), "{error}");
    let error = value("value: '{podName}'").await.unwrap_err();
    assert!(error.contains("POD_NAME") && error.contains("\"k\""), "{error}");
}

#[tokio::test]
async fn an_environment_variable_stands_in_for_an_absent_value() {
    assert_eq!(value("envRef: PLAIN").await.unwrap(), "plain");
    assert_eq!(value("envRef: QUOTED").await.unwrap(), "a\nb");
    assert_eq!(value("value: mine, envRef: PLAIN").await.unwrap(), "mine");
    assert_eq!(value("envRef: DAPR_API_TOKEN").await.unwrap(), "");
}

#[tokio::test]
async fn a_secret_takes_the_place_of_a_value() {
    let of = |key: &str| format!("secretKeyRef: {{name: redis, key: {key}}}");
    assert_eq!(value(&of("password")).await.unwrap(), "hunter2");
    assert_eq!(value(&format!("value: v, {}", of("password"))).await.unwrap(), "hunter2");
    assert_eq!(value(&format!("value: v, {}", of("empty"))).await.unwrap(), "v");
    assert_eq!(value("secretKeyRef: {name: redis}").await.unwrap(), "own");
    let error = value(&of("none")).await.unwrap_err();
    assert!(error.contains("s.yaml, document 1") && error.contains("\"none\""), "{error}");
    let error = value("secretKeyRef: {name: nope, key: k}").await.unwrap_err();
    assert!(error.contains("\"vault\"") && error.contains("ERR_SECRET_GET"), "{error}");
}

#[tokio::test]
async fn a_secret_is_asked_for_once_a_component() {
    let item = "{name: a, secretKeyRef: {name: redis, key: password}}";
    let component = component(&format!("[{item}, {item}]"));
    let fake = Fake::default();
    component.properties(&environment(), &fake).await.unwrap();
    let asked = fake.asked.into_inner().unwrap();
    assert_eq!(asked, [("vault".to_owned(), "redis".to_owned(), "dev".to_owned())]);
}

#[tokio::test]
async fn without_a_secret_store_the_one_of_the_cluster_is_used() {
    let mut component = component("[{name: a, secretKeyRef: {name: redis}}]");
    component.secret_store = String::new();
    let error = component.properties(&environment(), &Fake::default()).await.unwrap_err();
    assert!(error.to_string().contains("secretStore"), "{error}");
    let mut environment = environment();
    environment.secret_store = Some("kubernetes".to_owned());
    let fake = Fake::default();
    component.properties(&environment, &fake).await.unwrap();
    assert_eq!(fake.asked.into_inner().unwrap()[0].0, "kubernetes");
}

#[test]
fn only_the_quotes_of_a_literal_are_removed() {
    for (value, text) in [
        ("\"a\"", "a"),
        ("`a\\n`", "a\\n"),
        ("'x'", "x"),
        ("'xy'", "'xy'"),
        ("\"a", "\"a"),
        ("a\"b\"", "a\"b\""),
        ("\"", "\""),
        ("", ""),
    ] {
        assert_eq!(unquote(value.to_owned()), text, "{value}");
    }
}

#[test]
fn debug_shows_no_value() {
    let component = component("[{name: redisPassword, value: hunter2}]");
    assert!(!format!("{component:?}").contains("hunter2"));
    let origin: &Origin = &component.origin;
    assert_eq!(origin.to_string(), "s.yaml, document 1");
}
