//! The protocols of daprd's two ports.

/// How calls are made to daprd, and how a refusal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    Http,
}
