//! What the command says, and the code that it exits with.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).output().unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], hint: &str) {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(64));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(hint), "{told}");
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
