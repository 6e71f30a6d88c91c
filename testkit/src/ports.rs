//! Free ports, for servers that cannot choose one by themselves.

use std::{
    fs::{File, create_dir_all},
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use parking_lot::Mutex;

/// Below the ports that the kernel gives to outgoing connections: one of those could
/// be taken before the server listens, or while it is restarted.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// How many ports a process has to itself.
const BLOCK: u16 = 100;

/// The ports of this process. Another process that uses this module gets others as long as the
/// file is locked.
struct Block {
    first: u16,
    given: u16,
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
                file.try_lock().ok().map(|()| Self { first, given: 0, _locked: file })
            })
            .expect("other processes have taken all ports")
    }

    fn next(&mut self) -> u16 {
        let port = self.first + self.given;
        self.given = (self.given + 1) % BLOCK;
        port
    }
}

/// A loopback port that nobody listens on. No other process is given it while this one lives.
pub fn free_port() -> u16 {
    static OWN: Mutex<Option<Block>> = Mutex::new(None);
    let mut own = OWN.lock();
    let block = own.get_or_insert_with(Block::take);
    (0..BLOCK)
        .map(|_| block.next())
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| panic!("all {BLOCK} ports from {} are in use", block.first))
}

/// The loopback address of a [free port](free_port).
pub fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}
