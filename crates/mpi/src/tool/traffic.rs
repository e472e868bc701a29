//! [`Traffic`]: messages and bytes that have left a process, by the protocol that carried them.

use crate::p2p::proto::Proto;

/// Messages that have left, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// How many.
    pub messages: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

/// What has left by each way. Whoever has it counts with the engine's lock held, so that a number costs an addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic([Carried; Proto::ALL.len()]);

impl Traffic {
    /// A message has left.
    #[inline(always)]
    pub(crate) fn count(&mut self, proto: Proto, bytes: usize) {
        let carried = &mut self.0[proto as usize];
        carried.messages += 1;
        carried.bytes += bytes as u64;
    }

    /// So much has left by a way.
    pub(crate) fn set(&mut self, proto: Proto, carried: Carried) {
        self.0[proto as usize] = carried;
    }

    /// What has left by a way.
    pub fn by(&self, proto: Proto) -> Carried {
        self.0[proto as usize]
    }

    /// What has left by all ways.
    pub fn all(&self) -> Carried {
        let sum = |sum: Carried, of: &Carried| Carried {
            messages: sum.messages.saturating_add(of.messages),
            bytes: sum.bytes.saturating_add(of.bytes),
        };
        self.0.iter().fold(Carried::default(), sum)
    }

    /// What has left since then, when it was this.
    pub fn since(&self, then: &Self) -> Self {
        let mut since = *self;
        for (mine, then) in since.0.iter_mut().zip(then.0) {
            mine.messages = mine.messages.saturating_sub(then.messages);
            mine.bytes = mine.bytes.saturating_sub(then.bytes);
        }
        since
    }

    /// With another one's numbers, which a rank may have made up: the largest number is the end.
    pub fn add(&mut self, other: &Self) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            mine.messages = mine.messages.saturating_add(other.messages);
            mine.bytes = mine.bytes.saturating_add(other.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_by_way_and_add_up() {
        let mut traffic = Traffic::default();
        traffic.count(Proto::EagerLine, 8);
        traffic.count(Proto::EagerLine, 0);
        let mut other = Traffic::default();
        other.count(Proto::RndvGet, 1 << 20);
        traffic.add(&other);
        assert_eq!(traffic.by(Proto::EagerLine), Carried { messages: 2, bytes: 8 });
        assert_eq!(traffic.all(), Carried { messages: 3, bytes: (1 << 20) + 8 });
        assert_eq!(traffic.since(&other).all(), Carried { messages: 2, bytes: 8 });
    }
}
