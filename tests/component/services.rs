//! Health and reflection, on every socket.

use leasehold_testkit::leasehold::Leasehold;
use tokio_stream::StreamExt as _;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::client::channel;

const LOCK_STORE: &str = "dapr.proto.components.v1.LockStore";

macro_rules! services {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::{
            ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest,
            server_reflection_response::MessageResponse,
        };
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices("*".to_owned())),
        };
        let requests = tokio_stream::iter([request]);
        let mut client = ServerReflectionClient::new($channel);
        let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
        match answers.next().await.unwrap().unwrap().message_response.unwrap() {
            MessageResponse::ListServicesResponse(list) => {
                list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    }};
}

#[tokio::test]
async fn reflection_v1alpha_names_the_lock_store_as_daprd_asks_for_it() {
    let leasehold = Leasehold::serve("memory", &[]);
    let names = services!(v1alpha, channel(&leasehold.socket("memory")).await);
    assert!(names.iter().any(|name| name == LOCK_STORE), "{names:?}");
}

#[tokio::test]
async fn reflection_v1_names_the_lock_store() {
    let leasehold = Leasehold::serve("memory", &[]);
    let names = services!(v1, channel(&leasehold.socket("memory")).await);
    assert!(names.iter().any(|name| name == LOCK_STORE), "{names:?}");
}

#[tokio::test]
async fn reflection_names_nothing_that_is_not_served() {
    let leasehold = Leasehold::serve("memory", &[]);
    let names = services!(v1, channel(&leasehold.socket("memory")).await);
    let of_the_sidecar = "leasehold.v1.Locks";
    assert!(!names.iter().any(|name| name == of_the_sidecar), "{names:?}");
}

#[tokio::test]
async fn health_is_serving_before_init() {
    let leasehold = Leasehold::serve("memory", &[]);
    let mut health = HealthClient::new(channel(&leasehold.socket("memory")).await);
    for service in ["", LOCK_STORE] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service:?}");
    }
}
