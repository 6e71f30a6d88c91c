//! Bad HTTP/2, on every interface.

use std::{collections::BTreeSet, time::Duration};

use tokio::{
    io::AsyncReadExt as _,
    time::{Instant, sleep, timeout},
};

use crate::{
    attacked::Attacked,
    frames::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE,
        PING, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, field, frame, greet,
        next_frame, opening, send, try_body, try_headers,
    },
    target::{Interface, PATIENCE, until_closed},
};

const INTERFACES: [Interface; 3] = [Interface::Component, Interface::Grpc, Interface::Http];
const MIB: usize = 1024 * 1024;

/// The stream IDs of a client.
fn streams() -> impl Iterator<Item = u32> {
    (1..).step_by(2)
}

#[tokio::test]
async fn rapid_resets_cost_the_others_nothing() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let headers = try_headers(interface);
        let mut attackers = Vec::new();
        for _ in 0..4 {
            let mut wire = attacked.connect().await;
            let mut burst = opening(&[]);
            for stream in streams().take(5_000) {
                burst.extend(frame(HEADERS, END_HEADERS, stream, &headers));
                burst.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
            }
            attackers.push(tokio::spawn(async move {
                // The connection may be closed meanwhile.
                let _ = timeout(PATIENCE, send(&mut *wire, &burst)).await;
                wire
            }));
        }
        attacked.steady_client.is_served(10).await;
        for attacker in attackers {
            drop(attacker.await.unwrap());
        }
        attacked.end().await;
    }
}

/// Frames that a caller still sends on a stream with an answer under way are no attack.
#[tokio::test]
async fn early_answers_do_not_end_the_connection() {
    const STREAMS: u32 = 3_000;
    for interface in [Interface::Component, Interface::Grpc] {
        let attacked = Attacked::start(interface).await;
        let mut wire = attacked.connect().await;
        greet(&mut *wire).await;
        let headers = [
            field(":method", "POST"),
            field(":scheme", "http"),
            field(":path", "/dapr.proto.runtime.v1.Dapr/SubscribeTopicEventsAlpha1"),
            field(":authority", "localhost"),
            field("content-type", "application/grpc"),
        ]
        .concat();
        for stream in streams().take(STREAMS as usize) {
            assert!(send(&mut *wire, &frame(HEADERS, END_HEADERS, stream, &headers)).await);
        }
        let mut answered = 0;
        while answered < STREAMS {
            let (kind, flags, _) = next_frame(&mut *wire).await;
            answered += u32::from(kind == HEADERS && flags & END_STREAM != 0);
        }
        for stream in streams().take(STREAMS as usize) {
            assert!(send(&mut *wire, &frame(DATA, 0, stream, &[0])).await);
        }
        assert!(send(&mut *wire, &frame(PING, 0, 0, &[0; 8])).await);
        loop {
            match next_frame(&mut *wire).await {
                (GOAWAY, ..) => panic!("{interface:?}: the connection is ended"),
                (PING, flags, _) if flags & ACK != 0 => break,
                _ => {}
            }
        }
        drop(wire);
        attacked.end().await;
    }
}

#[tokio::test]
async fn a_thousand_half_open_streams_leave_room_for_others() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let mut wire = attacked.connect().await;
        let mut burst = opening(&[]);
        for stream in streams().take(1_000) {
            burst.extend(frame(HEADERS, END_HEADERS, stream, &try_headers(interface)));
            burst.extend(frame(DATA, 0, stream, &[0]));
        }
        assert!(send(&mut *wire, &burst).await);
        attacked.steady_client.is_served(20).await;
        drop(wire);
        attacked.end().await;
    }
}

#[tokio::test]
async fn requests_that_do_not_end_are_ended() {
    const HALF_OPEN: usize = 100;
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let mut wire = attacked.connect().await;
        greet(&mut *wire).await;
        for stream in streams().take(HALF_OPEN) {
            let headers = frame(HEADERS, END_HEADERS, stream, &try_headers(interface));
            assert!(send(&mut *wire, &[headers, frame(DATA, 0, stream, &[0])].concat()).await);
        }
        let mut ended = BTreeSet::new();
        let all_ended = timeout(PATIENCE, async {
            while ended.len() < HALF_OPEN {
                let (kind, flags, stream) = next_frame(&mut *wire).await;
                if kind == RST_STREAM || kind <= HEADERS && flags & END_STREAM != 0 {
                    ended.insert(stream);
                }
            }
        });
        assert!(
            all_ended.await.is_ok(),
            "{interface:?}: {} of {HALF_OPEN} are ended",
            ended.len()
        );
        drop(wire);
        attacked.end().await;
    }
}

/// Each message has the largest allowed size, and all but its end is sent.
#[tokio::test]
async fn messages_that_never_end_do_not_fill_the_memory() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let length: u32 =
            if interface == Interface::Component { 1024 * 1024 } else { 64 * 1024 - 8 };
        let message =
            [&[0][..], &length.to_be_bytes(), &vec![b' '; length as usize - 1]].concat();
        let mut attackers = Vec::new();
        for _ in 0..8 {
            let mut wire = attacked.connect().await;
            let (message, headers) = (message.clone(), try_headers(interface));
            attackers.push(tokio::spawn(async move {
                // The connection's window limits unread bytes.
                let attack = async {
                    greet(&mut *wire).await;
                    for stream in streams().take(48 * MIB / message.len()) {
                        send(&mut *wire, &frame(HEADERS, END_HEADERS, stream, &headers)).await;
                        for part in message.chunks(16 * 1024) {
                            if !send(&mut *wire, &frame(DATA, 0, stream, part)).await {
                                return;
                            }
                        }
                    }
                };
                let _ = timeout(Duration::from_secs(5), attack).await;
                wire
            }));
        }
        attacked.steady_client.is_served(20).await;
        let mut wires = Vec::new();
        for attacker in attackers {
            wires.push(attacker.await.unwrap());
        }
        attacked.steady_client.is_served(5).await;
        drop(wires);
        attacked.end().await;
    }
}

#[tokio::test]
async fn a_malformed_frame_ends_its_connection_alone() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let headers = try_headers(interface);
        for (what, bytes) in [
            ("a frame larger than any", frame(DATA, 0, 1, &vec![0; 17_000])),
            ("headers on the connection", frame(HEADERS, END_HEADERS, 0, &headers)),
            ("headers on a server's stream", frame(HEADERS, END_HEADERS, 2, &headers)),
            ("data before headers", frame(DATA, 0, 1, b"x")),
            ("a continuation of nothing", frame(CONTINUATION, END_HEADERS, 1, &headers)),
            ("settings of five bytes", frame(SETTINGS, 0, 0, b"12345")),
            ("settings on a stream", frame(SETTINGS, 0, 1, b"")),
            ("a window that overflows", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255])),
            ("a window of nothing more", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
            ("a ping of seven bytes", frame(PING, 0, 0, b"1234567")),
            ("a promise to a server", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])),
            ("an index of no header", frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff, 0x7f])),
            ("a header cut short", frame(HEADERS, END_HEADERS, 1, &[0, 0x7f])),
            ("a reset of nothing", frame(RST_STREAM, 0, 1, &[0; 4])),
        ] {
            let mut wire = attacked.connect().await;
            send(&mut *wire, &[opening(&[]), bytes].concat()).await;
            println!("{interface:?}: {what}");
            until_closed(&mut *wire).await;
        }
        attacked.end().await;
    }
}

#[tokio::test]
async fn headers_continued_without_end_are_cut_off() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let mut wire = attacked.connect().await;
        let first = frame(HEADERS, 0, 1, &try_headers(interface));
        send(&mut *wire, &[opening(&[]), first].concat()).await;
        let more = frame(CONTINUATION, 0, 1, &field("x-more", &"m".repeat(8_000)));
        let mut sent = 0;
        while sent < 64 * MIB && send(&mut *wire, &more).await {
            sent += more.len();
        }
        assert!(sent < 64 * MIB, "{interface:?} takes headers of {sent} bytes");
        attacked.end().await;
    }
}

/// A header of the table costs a byte to repeat.
#[tokio::test]
async fn a_header_repeated_from_the_table_is_not_unpacked_without_limit() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        // Literal with indexing; then only its index, 62, which is the newest.
        let mut stored = field("x-bomb", &"b".repeat(3_900));
        stored[0] = 0x40;
        let bomb = [try_headers(interface), stored, vec![0x80 | 62; 12_000]].concat();
        for _ in 0..20 {
            let mut wire = attacked.connect().await;
            let attack = frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb);
            send(&mut *wire, &[opening(&[]), attack].concat()).await;
            // Refused or closed: there is an answer in any case.
            let mut said = [0; 256];
            let _ = timeout(PATIENCE, wire.read(&mut said)).await.expect("no answer");
        }
        attacked.end().await;
    }
}

#[tokio::test]
async fn pings_and_settings_whose_answers_nobody_reads_are_not_heaped_up() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let burst = [frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0, b"")].concat();
        let burst = burst.repeat(1_000);
        let mut unread = Vec::new();
        for _ in 0..4 {
            let mut wire = attacked.connect().await;
            let attack = async {
                send(&mut *wire, &opening(&[])).await;
                while send(&mut *wire, &burst).await {}
            };
            // It accepts no more bytes, or ends the connection.
            let _ = timeout(Duration::from_secs(1), attack).await;
            unread.push(wire);
        }
        attacked.steady_client.is_served(10).await;
        drop(unread);
        attacked.end().await;
    }
}

/// A grant whose answer cannot be written is released when its connection ends.
#[tokio::test]
async fn grants_that_nobody_reads_are_released() {
    const TRIES: usize = 500;
    for interface in [Interface::Component, Interface::Grpc] {
        let attacked = Attacked::start(interface).await;
        let mut wire = attacked.connect().await;
        let mut burst = opening(&[(INITIAL_WINDOW_SIZE, 0)]);
        for (stream, nth) in streams().zip(0..TRIES) {
            let body = try_body(interface, &format!("unread-{nth}"));
            burst.extend(frame(HEADERS, END_HEADERS, stream, &try_headers(interface)));
            burst.extend(frame(DATA, END_STREAM, stream, &body));
        }
        assert!(send(&mut *wire, &burst).await);
        attacked.steady_client.is_served(20).await;
        drop(wire);
        let give_up = Instant::now() + Duration::from_secs(10);
        for nth in 0..TRIES {
            while !is_free(&attacked, &format!("unread-{nth}")).await {
                assert!(Instant::now() < give_up, "{interface:?}: unread-{nth} is still held");
                sleep(Duration::from_millis(20)).await;
            }
        }
        attacked.end().await;
    }
}

/// Whether a try on a connection of its own is granted.
async fn is_free(attacked: &Attacked, resource: &str) -> bool {
    let interface = attacked.target.interface;
    let mut wire = attacked.connect().await;
    let attempt = [
        opening(&[]),
        frame(HEADERS, END_HEADERS, 1, &try_headers(interface)),
        frame(DATA, END_STREAM, 1, &try_body(interface, resource)),
    ];
    assert!(send(&mut *wire, &attempt.concat()).await);
    // A grant is a frame of data; a refusal has none.
    let seen = timeout(PATIENCE, async {
        loop {
            let mut head = [0; 9];
            wire.read_exact(&mut head).await.unwrap();
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            wire.read_exact(&mut payload).await.unwrap();
            match (head[3], head[4] & END_STREAM != 0) {
                (DATA, _) if length > 0 => return true,
                (HEADERS | DATA, true) => return false,
                _ => {}
            }
        }
    });
    seen.await.expect("no answer to a try")
}
