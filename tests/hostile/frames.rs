//! HTTP/2 frames, by hand: no client would send some of them.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::target::{Interface, Wire};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The preface and the client's settings.
pub fn opening(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    [PREFACE, &frame(SETTINGS, 0, 0, &payload)].concat()
}

/// A header that is not added to the table.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        integer(&mut field, text.len(), 7);
        field.extend(text.as_bytes());
    }
    field
}

/// HPACK's integer of a prefix of `bits`.
fn integer(into: &mut Vec<u8>, mut number: usize, bits: u32) {
    let most = (1 << bits) - 1;
    if number < most {
        into.push(u8::try_from(number).unwrap());
        return;
    }
    into.push(u8::try_from(most).unwrap());
    number -= most;
    while number >= 128 {
        into.push(u8::try_from(number % 128 + 128).unwrap());
        number /= 128;
    }
    into.push(u8::try_from(number).unwrap());
}

/// The headers of a try at this interface.
pub fn try_headers(interface: Interface) -> Vec<u8> {
    let path = match interface {
        Interface::Component => "/dapr.proto.components.v1.LockStore/TryLock",
        Interface::Grpc => "/leasehold.v1.Locks/Lock",
        Interface::Http => "/v1.0-alpha2/lock/mem/attacked",
    };
    [
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":path", path),
        field(":authority", "localhost"),
        field("content-type", "application/grpc"),
        field("te", "trailers"),
    ]
    .concat()
}

/// The body of a try at this interface, which is granted or refused.
pub fn try_body(interface: Interface, resource: &str) -> Vec<u8> {
    use leasehold_proto::{components, locks};
    use prost::Message as _;
    let resource_id = resource.to_owned();
    let message = match interface {
        Interface::Http => return br#"{"immediate":true}"#.to_vec(),
        Interface::Component => {
            components::LockRequest { resource_id, ..Default::default() }.encode_to_vec()
        }
        Interface::Grpc => {
            let store_name = "mem".to_owned();
            locks::LockRequest {
                store_name,
                resource_id,
                immediate: true,
                ..Default::default()
            }
            .encode_to_vec()
        }
    };
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &message].concat()
}

/// Opens the connection and reads the server's settings, including its windows,
/// as a client does.
pub async fn greet(wire: &mut (dyn Wire + '_)) {
    assert!(send(wire, &opening(&[])).await);
    while !matches!(next_frame(wire).await, (SETTINGS, flags, _) if flags & ACK == 0) {}
    assert!(send(wire, &frame(SETTINGS, ACK, 0, b"")).await);
}

/// The kind, the flags and the stream of the next frame.
pub async fn next_frame(wire: &mut (dyn Wire + '_)) -> (u8, u8, u32) {
    let mut head = [0; 9];
    wire.read_exact(&mut head).await.unwrap();
    let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    wire.read_exact(&mut payload).await.unwrap();
    (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]))
}

/// Writes as long as the other side accepts bytes. Returns whether it accepted all.
pub async fn send(wire: &mut (dyn Wire + '_), bytes: &[u8]) -> bool {
    wire.write_all(bytes).await.is_ok()
}
