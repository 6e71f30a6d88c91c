//! Inspection on a component's socket.

use leasehold_proto::locks::{
    ListLocksRequest, ListLocksResponse, inspection_client::InspectionClient,
};
use leasehold_testkit::leasehold::Leasehold;
use tonic::{Request, Status, transport::Channel};

use crate::client::{Client, channel, fields};

async fn list(
    socket: &Channel,
    instance: &'static str,
    page_token: &str,
) -> Result<ListLocksResponse, Status> {
    let asked = ListLocksRequest {
        page_size: 1,
        page_token: page_token.into(),
        ..ListLocksRequest::default()
    };
    let mut request = Request::new(asked);
    request.metadata_mut().insert("x-component-instance", instance.parse().unwrap());
    Ok(InspectionClient::new(socket.clone()).list_locks(request).await?.into_inner())
}

#[tokio::test]
async fn a_page_token_of_another_instance_is_refused() {
    let leasehold = Leasehold::serve("memory", &[]);
    let socket = leasehold.socket("memory");
    let client = Client::connect(&socket).await;
    for instance in ["a", "b"] {
        let client = client.instance(instance);
        client.init(&[]).await.unwrap();
        client.try_lock("1").await.unwrap();
        client.try_lock("2").await.unwrap();
    }
    let socket = channel(&socket).await;
    let token = list(&socket, "a", "").await.unwrap().next_page_token;
    assert!(list(&socket, "a", &token).await.is_ok());
    let refused = list(&socket, "b", &token).await.unwrap_err();
    assert_eq!(fields(&refused), ["page_token"]);
}
