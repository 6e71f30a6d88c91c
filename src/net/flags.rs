//! The values of flags that say where to listen.

use std::net::{IpAddr, Ipv4Addr};

/// Reads a port.
pub fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "it is no port; use a number from 0 to 65535".to_owned())
}

/// Reads an IP address, or `localhost`. An IPv6 address may be in brackets, which Go's libraries
/// need.
pub fn address(text: &str) -> Result<IpAddr, String> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(text).parse().map_err(|_| {
        "it is neither an IP address nor localhost; host names are not resolved".to_owned()
    })
}
