//! The slots of a Redis Cluster.

/// The slot of a key: of the part in its first braces if that is not empty, otherwise of all.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}').filter(|close| *close > 0)?;
        Some(&rest[..close])
    });
    crc16(tag.unwrap_or(key)) & 0x3FFF
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [("06S", 0), ("2Gx", 1), ("6ZJ", 16_383), ("a}b", 7_866)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        for key in ["\u{1}h{4w2}a}b", "{a}b", "x{a}{b"] {
            let tag = if key.contains("4w2") { "4w2" } else { "a" };
            assert_eq!(slot_of(key.as_bytes()), slot_of(tag.as_bytes()), "{key}");
        }
        assert_ne!(slot_of(b"{}a"), slot_of(b""), "empty braces count for nothing");
    }
}
