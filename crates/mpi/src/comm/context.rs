//! [`Context`]: the name of a communicator, which separates its messages from those of all others (MPI 5.0, section 7.2.2).
//!
//! One process names a communicator by its own process number and a serial number, so that names are unique without any agreement.
//! It sends the name to the other members.

/// The name of a communicator. Communicators without common members may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Context(u64);

/// The purpose of a communicator's message. Messages with different purposes never match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plane {
    /// The program's point-to-point messages.
    PointToPoint = 0,
    /// Collective operations.
    Collective = 1,
    /// The creation of communicators by some of the members.
    CommCreate = 2,
    /// Messages within one group of an intercommunicator.
    LocalGroup = 3,
    /// Announcements of partitioned messages.
    PartitionedInfo = 4,
    /// The parts of partitioned messages.
    PartitionedData = 5,
    /// Requests of window members to each other for accesses that the device cannot do.
    RmaRequest = 6,
    /// Replies to these requests.
    RmaReply = 7,
}

/// The largest serial number.
pub(crate) const SERIAL_MAX: u32 = (1 << 29) - 1;

impl Context {
    /// The name that a process gives, with a serial number up to [`SERIAL_MAX`].
    pub(crate) fn new(process: u32, serial: u32) -> Self {
        Self(u64::from(process) << 32 | u64::from(serial) << 3)
    }

    /// The context of messages with one purpose.
    #[inline]
    pub(crate) fn plane(self, plane: Plane) -> u64 {
        self.0 | plane as u64
    }

    /// The number that is sent to other members.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The name for a number that another member has sent.
    pub(crate) fn from_number(number: u64) -> Self {
        Self(number & !7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_and_planes_are_distinct() {
        let mut all = Vec::new();
        for (process, serial) in [(0, 0), (0, 1), (1, 0), (u32::MAX, SERIAL_MAX), (0, SERIAL_MAX)] {
            let context = Context::new(process, serial);
            assert_eq!(Context::from_number(context.number()), context);
            let planes = [Plane::PointToPoint, Plane::Collective, Plane::CommCreate, Plane::LocalGroup];
            all.extend(planes.map(|plane| context.plane(plane)));
            let others = [Plane::PartitionedInfo, Plane::PartitionedData, Plane::RmaRequest, Plane::RmaReply];
            all.extend(others.map(|plane| context.plane(plane)));
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40);
    }
}
