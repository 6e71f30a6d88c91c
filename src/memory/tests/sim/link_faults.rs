//! The faults of calls, drawn from the seed.

use std::time::Duration;

use fastrand::Rng;

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is answered after some time.
    Fine,
    /// It never leaves the process.
    NotSent,
    /// The request is lost, and the connection breaks.
    RequestLost,
    /// The request is lost silently.
    Silent,
    /// It is carried out, and the connection breaks before the reply.
    ReplyLost,
    /// It is carried out, and the reply is lost silently.
    ReplySilent,
    /// It is carried out, the reply is lost silently, and the adapter exceeds its time
    /// limit.
    Stuck,
}

impl Fate {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::NotSent => "not sent",
            Self::RequestLost => "request lost",
            Self::Silent => "silent",
            Self::ReplyLost => "reply lost",
            Self::ReplySilent => "reply silent",
            Self::Stuck => "stuck",
        }
    }

    pub fn is_silent(self) -> bool {
        matches!(self, Self::Silent | Self::ReplySilent | Self::Stuck)
    }

    pub fn request_arrives(self) -> bool {
        !matches!(self, Self::NotSent | Self::RequestLost | Self::Silent)
    }
}

/// The faults of one link.
pub struct LinkFaults {
    rng: Rng,
    /// How many of a thousand calls have a fault.
    faults_per_mille: u32,
    delay_ms_max: u64,
    /// How many more calls the present outage affects: none of them is sent.
    outage: u32,
}

impl LinkFaults {
    pub fn new(rng: Rng, faults_per_mille: u32, delay_ms_max: u64) -> Self {
        Self { rng, faults_per_mille, delay_ms_max, outage: 0 }
    }

    pub fn clear(&mut self) {
        (self.faults_per_mille, self.delay_ms_max, self.outage) = (0, 0, 0);
    }

    pub fn fate(&mut self) -> Fate {
        if self.outage > 0 {
            self.outage -= 1;
            return Fate::NotSent;
        }
        if self.rng.u32(..1000) >= self.faults_per_mille {
            return Fate::Fine;
        }
        match self.rng.u8(..12) {
            0 => {
                self.outage = self.rng.u32(1..6);
                Fate::NotSent
            }
            1..3 => Fate::NotSent,
            3..5 => Fate::RequestLost,
            5 => Fate::Silent,
            6..9 => Fate::ReplyLost,
            9..11 => Fate::ReplySilent,
            _ => Fate::Stuck,
        }
    }

    pub fn delay(&mut self) -> Duration {
        match self.rng.u8(..32) {
            0 => self.delay_up_to(self.delay_ms_max * 20),
            1..6 => Duration::ZERO,
            _ => self.delay_up_to(self.delay_ms_max),
        }
    }

    pub fn delay_up_to(&mut self, ms_max: u64) -> Duration {
        Duration::from_millis(self.rng.u64(..=ms_max))
    }
}
