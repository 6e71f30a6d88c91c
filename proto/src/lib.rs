//! The wire of leasehold: messages, clients and servers generated from the
//! `.proto` files beside this crate, and their descriptors.

pub mod sidecar;

/// Dapr's pluggable-component protocol, with the alpha2 lock store.
pub mod components {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    tonic::include_proto!("dapr.proto.components.v1");
}

/// The sidecar's own alpha2 lock API, and the inspection of locks.
pub mod locks {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    tonic::include_proto!("leasehold.v1");
}

/// The part of Dapr's own API that the sidecar serves.
pub mod dapr {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    tonic::include_proto!("dapr.proto.runtime.v1");
}

/// Every file's descriptor, encoded as a `google.protobuf.FileDescriptorSet`,
/// as gRPC reflection serves it.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
