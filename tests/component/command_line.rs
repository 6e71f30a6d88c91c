//! The messages and exit codes of the command.

use std::{
    fs,
    process::{Command, Output},
};

use leasehold::backend::KINDS;
use tempfile::TempDir;

fn run(arguments: &[&str]) -> Output {
    Command::new(leasehold_testkit::leasehold::program()).args(arguments).output().unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], hint: &str) {
    ended(arguments, 64, &[hint]);
}

#[track_caller]
fn ended(arguments: &[&str], code: i32, hints: &[&str]) {
    let output = run(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    for hint in hints {
        assert!(message.contains(hint), "{hint} is not in\n{message}");
    }
}

/// A folder with one component of this type and these items.
fn component(kind: &str, items: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: locks}}\n\
         spec:\n  type: {kind}\n  version: v1\n  metadata: [{items}]\n"
    );
    fs::write(folder.path().join("locks.yaml"), text).unwrap();
    folder
}

#[track_caller]
fn sidecar_ended(yaml: &TempDir, code: i32, hints: &[&str]) {
    let path = yaml.path().to_str().unwrap();
    let ports = ["--dapr-grpc-port", "0", "--dapr-http-port", "0"];
    let arguments = ["sidecar", "--socket-folder", path, "--resources-path", path];
    ended(&[&arguments[..], &ports].concat(), code, hints);
}

#[test]
fn help_is_no_failure_and_names_every_option() {
    let output = run(&["serve", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for option in ["--socket-folder", "--resources-path", "--store", "--socket-mode"] {
        assert!(help.contains(option), "{option}");
    }
}

#[test]
fn the_help_of_both_commands_has_examples_environment_and_exit_codes() {
    for command in ["serve", "sidecar"] {
        let help = String::from_utf8(run(&[command, "--help"]).stdout).unwrap();
        for part in ["Examples:", "Environment:", "Exit status:"] {
            assert!(help.contains(part), "{command}: {part}");
        }
    }
}

#[test]
fn a_port_that_is_none_is_refused_by_its_flag() {
    for flag in ["--dapr-http-port", "--dapr-grpc-port", "--app-port"] {
        ended(&["sidecar", flag, "x"], 64, &[flag, "a number from 0 to 65535"]);
    }
}

#[test]
fn both_apis_on_one_port_are_refused() {
    let ports = ["sidecar", "--dapr-http-port", "3999", "--dapr-grpc-port", "3999"];
    ended(&ports, 64, &["--dapr-http-port and --dapr-grpc-port are both 3999"]);
}

#[test]
fn a_sidecar_behind_itself_is_refused_with_the_flag_to_change() {
    for (behind, endpoint, port) in [
        ("--daprd-http-endpoint", "127.0.0.1:3998", "--dapr-http-port"),
        ("--daprd-grpc-endpoint", "http://localhost:3999", "--dapr-grpc-port"),
        ("--daprd-http-endpoint", "[::1]:3999", "--dapr-grpc-port"),
    ] {
        let ports = ["sidecar", "--dapr-http-port", "3998", "--dapr-grpc-port", "3999"];
        let arguments = [&ports[..], &[behind, endpoint]].concat();
        ended(&arguments, 64, &[behind, endpoint, "is the sidecar itself", port]);
    }
}

#[test]
fn sockets_need_a_folder_and_an_app_id() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    refused(&["sidecar", "--unix-domain-socket", folder], "needs --app-id");
    let nowhere = format!("{folder}/nowhere");
    let arguments = ["sidecar", "--app-id", "a", "--unix-domain-socket", &nowhere];
    ended(&arguments, 64, &["--unix-domain-socket", &nowhere, "is no folder"]);
}

#[test]
fn a_resources_path_that_is_a_file_is_refused_with_the_fix() {
    let yaml = component("lock.memory", "");
    let file = yaml.path().join("locks.yaml");
    let file = file.to_str().unwrap();
    for command in ["serve", "sidecar"] {
        let arguments = [command, "--resources-path", file];
        ended(&arguments, 64, &[file, "it is a file, give the folder"]);
    }
}

#[test]
fn an_unknown_type_is_reported_with_the_built_in_ones_and_the_nearest() {
    let yaml = component("lock.redsi", "");
    let kinds: Vec<_> =
        KINDS.built_in.iter().map(|kind| format!("lock.{}", kind.name)).collect();
    let kinds = kinds.join(", ");
    let hints = [&*kinds, "did you mean lock.redis?"];
    sidecar_ended(
        &yaml,
        1,
        &[&hints[..], &["locks.yaml, document 1", "redsi.sock", "no --app-id"]].concat(),
    );
}

#[test]
fn a_wrong_property_is_reported_with_its_file_and_an_unknown_one_beside_it() {
    let yaml = component("lock.redis", "{name: redisHots, value: h}");
    let hints = ["locks.yaml, document 1", "redisHost is missing", "did you mean"];
    sidecar_ended(&yaml, 64, &[&hints[..], &["redisHots"]].concat());
}

#[test]
fn an_etcd_that_is_not_reached_is_reported_with_the_property_to_correct() {
    // Port 1 of the loopback has no listener.
    let yaml = component("lock.etcd", "{name: endpoints, value: \"127.0.0.1:1\"}");
    sidecar_ended(&yaml, 1, &["http://127.0.0.1:1", "start etcd, or correct endpoints"]);
}

#[test]
fn a_secret_without_a_store_is_reported_with_the_fix() {
    let yaml = component("lock.memory", "{name: ttl, secretKeyRef: {name: s}}");
    sidecar_ended(&yaml, 64, &["locks.yaml", "auth: {secretStore: NAME}"]);
}

#[test]
fn an_unknown_option_is_a_wrong_command_line() {
    refused(&["serve", "--sockets"], "--sockets");
}

#[test]
fn no_command_is_a_wrong_command_line() {
    refused(&[], "serve");
}

#[test]
fn an_unknown_store_is_refused_with_those_that_there_are() {
    refused(&["serve", "--store", "mongo"], "memory");
}

#[test]
fn two_stores_on_one_socket_are_refused() {
    refused(&["serve", "--store", "memory=a", "--store", "memory=a"], "\"a\"");
}

#[test]
fn permissions_that_are_not_octal_are_refused() {
    refused(&["serve", "--socket-mode", "rw"], "0660");
}

#[test]
fn a_resources_path_that_is_not_there_is_refused_by_its_name() {
    refused(&["serve", "--resources-path", "/no/such/folder"], "/no/such/folder");
}

/// The warning was once left out where the error followed.
#[test]
fn a_misspelt_property_is_named_beside_the_missing_one() {
    let yaml = component("lock.redis", "{name: redisHots, value: 'h:1'}");
    let path = yaml.path().to_str().unwrap();
    let arguments =
        ["serve", "--store", "redis", "--socket-folder", path, "--resources-path", path];
    ended(&arguments, 64, &["redisHost is missing", "redisHots"]);
}
