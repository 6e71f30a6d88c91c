//! Ping, Features, health and reflection.

use anyhow::{Context as _, bail, ensure};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::{v1, v1alpha};

use crate::{
    case::Cases, connection::Connection, expect::Expect as _, lacks::Absent, words::listed,
    world::World,
};

const SERVICE: &str = "dapr.proto.components.v1.LockStore";

pub(crate) fn tests(cases: &mut Cases) {
    cases.core(
        "Ping answers",
        |world| async move { world.store().ping().await.or_fail("Ping") },
    );
    cases.core("Features names each feature once", features);
    cases.core("reflection v1alpha lists the lock store, as daprd's discovery asks", v1alpha);
    cases.core("reflection v1, where there is one, lists the lock store", v1);
    cases.core("health, where it is served, is SERVING", health);
}

async fn features(world: World) -> anyhow::Result<()> {
    let mut features = world.store().features().await.or_fail("Features")?;
    let count = features.len();
    features.sort();
    features.dedup();
    ensure!(
        features.len() == count,
        "a feature is named twice; all names: {}",
        listed(&features)
    );
    Ok(())
}

async fn v1alpha(world: World) -> anyhow::Result<()> {
    use v1alpha::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let http = world.connection().http();
    let mut client = ServerReflectionClient::with_origin(http, Connection::origin());
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = client
        .server_reflection_info(tokio_stream::once(request))
        .await
        .or_fail("reflection v1alpha")?
        .into_inner();
    let answer = answers.next().await.context("reflection v1alpha answered nothing")?;
    match answer.or_fail("reflection v1alpha")?.message_response {
        Some(MessageResponse::ListServicesResponse(list)) => {
            lists_the_store(list.service.into_iter().map(|service| service.name))
        }
        _ => bail!("reflection v1alpha did not answer list_services with a list"),
    }
}

async fn v1(world: World) -> anyhow::Result<()> {
    use v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let http = world.connection().http();
    let mut client = ServerReflectionClient::with_origin(http, Connection::origin());
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let opened = client.server_reflection_info(tokio_stream::once(request)).await;
    let mut answers = present(opened, "reflection v1")?.into_inner();
    let answer = answers.next().await.context("reflection v1 answered nothing")?;
    match present(answer, "reflection v1")?.message_response {
        Some(MessageResponse::ListServicesResponse(list)) => {
            lists_the_store(list.service.into_iter().map(|service| service.name))
        }
        _ => bail!("reflection v1 did not answer list_services with a list"),
    }
}

async fn health(world: World) -> anyhow::Result<()> {
    let mut client = HealthClient::with_origin(world.connection().http(), Connection::origin());
    let checked = client.check(HealthCheckRequest { service: String::new() }).await;
    let status = present(checked, "grpc.health.v1")?.into_inner().status();
    ensure!(status == ServingStatus::Serving, "health says {}", status.as_str_name());
    Ok(())
}

/// The answer of an optional service; UNIMPLEMENTED if the store does not have it.
fn present<T>(answer: Result<T, Status>, service: &str) -> anyhow::Result<T> {
    match answer {
        Err(status) if status.code() == Code::Unimplemented => {
            bail!(Absent(format!("the store does not serve {service}")))
        }
        answer => answer.or_fail(service),
    }
}

fn lists_the_store(services: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let services: Vec<_> = services.collect();
    ensure!(
        services.iter().any(|name| name == SERVICE),
        "{SERVICE} is not in {}",
        listed(&services)
    );
    Ok(())
}
