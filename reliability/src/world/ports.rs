//! Ports for servers that are started again.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::bail;

/// Below what the kernel hands out to outgoing connections: a port from there
/// might be taken while its server is down.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
const TRIES: usize = 1_000;

/// A loopback address that nobody listens on.
pub(super) fn free_address(rng: &mut fastrand::Rng) -> anyhow::Result<SocketAddr> {
    for _ in 0..TRIES {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rng.u16(PORTS)));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port in {PORTS:?} after {TRIES} tries")
}
