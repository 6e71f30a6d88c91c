//! Where the messages of a gRPC body begin and end.

/// A message begins with a byte that says whether it is compressed, and the length of the
/// rest in four bytes.
const HEADER_BYTES: usize = 5;

/// Follows the messages of a gRPC body as its bytes arrive.
#[derive(Debug, Default)]
pub(super) struct MessageFraming {
    header: [u8; HEADER_BYTES],
    /// How many bytes of the header have arrived; 0 between two messages.
    header_bytes: usize,
    /// How many bytes of the message are missing, once its header is whole.
    missing: usize,
}

impl MessageFraming {
    /// Counts bytes that have arrived. Returns whether the last message is whole now.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let in_header = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            let (header, rest) = bytes.split_at(in_header);
            let end = self.header_bytes + in_header;
            self.header[self.header_bytes..end].copy_from_slice(header);
            self.header_bytes = end;
            if end < HEADER_BYTES {
                break;
            }
            if in_header > 0 {
                let [_, length @ ..] = self.header;
                self.missing =
                    usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            }
            let in_message = self.missing.min(rest.len());
            self.missing -= in_message;
            bytes = &rest[in_message..];
            if self.missing == 0 {
                self.header_bytes = 0;
            }
        }
        self.header_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_however_its_bytes_arrive() {
        // A message of three bytes, an empty one, and one of 256.
        let mut bytes = vec![0, 0, 0, 0, 3, 7, 7, 7, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        bytes.extend([9; 256]);
        let ends = [8, 13, bytes.len()];
        for step in 1..=bytes.len() {
            let mut framing = MessageFraming::default();
            for (at, part) in bytes.chunks(step).enumerate() {
                let read = at * step + part.len();
                assert_eq!(framing.follow(part), ends.contains(&read), "{read} by {step}");
            }
        }
    }

    #[test]
    fn nothing_read_is_nothing_begun() {
        assert!(MessageFraming::default().follow(&[]));
    }
}
