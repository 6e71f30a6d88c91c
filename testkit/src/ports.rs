//! Free ports, for servers that cannot choose one by themselves.

use std::{
    collections::VecDeque,
    fs::{File, create_dir_all},
    io,
    net::{Ipv4Addr, SocketAddr},
};

use parking_lot::Mutex;
use tokio::net::TcpSocket;

/// Below the ports that the kernel gives to outgoing connections: one of those could
/// be taken before the server listens, or while it is restarted.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// How many ports a process takes at once.
const BLOCK: u16 = 100;
/// How many blocks a process keeps, the last ones: a server that is down for a while, or not up
/// yet, has its port to itself.
const BLOCKS_MAX: usize = 10;

/// Ports of this process. Another process that uses this module gets others while the file is
/// locked.
struct Block {
    left: std::ops::Range<u16>,
    _locked: File,
}

impl Block {
    fn take() -> Self {
        let folder = std::env::temp_dir().join("leasehold-test-ports");
        create_dir_all(&folder).unwrap();
        let blocks = PORTS.len() / usize::from(BLOCK);
        let begin = fastrand::usize(..blocks);
        PORTS
            .step_by(usize::from(BLOCK))
            .cycle()
            .skip(begin)
            .take(blocks)
            .find_map(|first| {
                let file = File::create(folder.join(first.to_string())).unwrap();
                file.try_lock()
                    .ok()
                    .map(|()| Self { left: first..first + BLOCK, _locked: file })
            })
            .expect("other processes have taken all ports")
    }
}

/// A loopback port that nobody listens on. It is given to no other process, nor again to this
/// one, before this one has asked for about 900 more.
pub fn free_port() -> u16 {
    static OWN: Mutex<VecDeque<Block>> = Mutex::new(VecDeque::new());
    let mut own = OWN.lock();
    loop {
        if let Some(port) =
            own.back_mut().and_then(|block| block.left.find(|port| is_free(*port)))
        {
            return port;
        }
        if own.len() == BLOCKS_MAX {
            own.pop_front();
        }
        own.push_back(Block::take());
    }
}

/// Whether nobody listens on the port. Does not listen itself: a program that another thread
/// starts at this moment would go on listening until it is executed.
fn is_free(port: u16) -> bool {
    let bound = || -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())
    };
    bound().is_ok()
}

/// The loopback address of a [free port](free_port).
pub fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process::Command, thread};

    use super::*;

    /// A program that starts has a copy of each descriptor until it is executed. The search
    /// listened on the port, so such a copy still listened when the caller did.
    #[test]
    fn a_free_port_can_be_listened_on_while_other_threads_start_programs() {
        let refused = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        Command::new("true").status().unwrap();
                    }
                });
            }
            (0..1_000).find_map(|_| TcpListener::bind(free_address()).err())
        });
        assert!(refused.is_none(), "{refused:?}");
    }
}
