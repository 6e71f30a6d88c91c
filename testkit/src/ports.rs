//! Free ports, for servers that cannot choose one by themselves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Below the ports that the kernel gives to outgoing connections: one of those could
/// be taken before the server listens, or while it is restarted.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
const TRIES: usize = 1_000;

/// A loopback port that nobody listens on. Another process may take it before it is
/// used, so a server that ends at once is to be started again on another port.
pub fn free_port() -> u16 {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(PORTS)).take(TRIES);
    ports
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| panic!("no free port in {PORTS:?} after {TRIES} tries"))
}

/// The loopback address of a [free port](free_port).
pub fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}
