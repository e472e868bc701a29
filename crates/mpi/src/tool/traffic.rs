//! [`Traffic`]: messages and bytes that have left a process, by the protocol that carried them.

/// How the data of a message go to the process that gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// To this process itself.
    Own,
    /// Stored in the line that both sides write in turn.
    Line,
    /// Stored in the ring in the receiver's NIC memory.
    Ring,
    /// Written into the receiver's memory by RDMA, where it looks for them ([`crate::Config::fast_path`]).
    Written,
    /// Sent within the work request.
    Inline,
    /// Sent from a slot.
    Slot,
    /// Read by the receiver, or copied by both sides.
    Rendezvous,
}

impl Carrier {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Own, Self::Line, Self::Ring, Self::Written, Self::Inline, Self::Slot, Self::Rendezvous];

    /// As variables and tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Line => "line",
            Self::Ring => "ring",
            Self::Written => "written",
            Self::Inline => "inline",
            Self::Slot => "slot",
            Self::Rendezvous => "rendezvous",
        }
    }
}

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
pub struct Traffic([Carried; Carrier::ALL.len()]);

impl Traffic {
    /// A message has left.
    #[inline(always)]
    pub(crate) fn count(&mut self, way: Carrier, bytes: usize) {
        let carried = &mut self.0[way as usize];
        carried.messages += 1;
        carried.bytes += bytes as u64;
    }

    /// So much has left by a way.
    pub(crate) fn set(&mut self, way: Carrier, carried: Carried) {
        self.0[way as usize] = carried;
    }

    /// What has left by a way.
    pub fn by(&self, way: Carrier) -> Carried {
        self.0[way as usize]
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
        traffic.count(Carrier::Line, 8);
        traffic.count(Carrier::Line, 0);
        let mut other = Traffic::default();
        other.count(Carrier::Rendezvous, 1 << 20);
        traffic.add(&other);
        assert_eq!(traffic.by(Carrier::Line), Carried { messages: 2, bytes: 8 });
        assert_eq!(traffic.all(), Carried { messages: 3, bytes: (1 << 20) + 8 });
        assert_eq!(traffic.since(&other).all(), Carried { messages: 2, bytes: 8 });
        for (at, way) in Carrier::ALL.into_iter().enumerate() {
            assert_eq!(way as usize, at, "{}", way.name());
        }
    }
}
