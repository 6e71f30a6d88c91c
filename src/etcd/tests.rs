//! Unit tests of several parts together. Those on a real server are `tests/main.rs`.

mod schedules;
