//! What configures a store: component YAML and the properties that it becomes.

pub mod manifest;
