//! [`Context`]: the name of a communicator, which keeps its messages apart from all others'.
//!
//! One process names a communicator: with its own number and a serial number of its own, so that no two names are alike without
//! anybody having to agree on what is free. The others are told.

/// The name of a communicator. Communicators without common members may have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Context(u64);

/// What a message of a communicator is for. None is matched with another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plane {
    /// The program's own.
    Point = 0,
    /// Collective operations.
    Collective = 1,
    /// Making communicators, of a part of the members.
    Making = 2,
    /// Within one side of an intercommunicator.
    Side = 3,
    /// What the two sides of a message in parts say to find each other.
    Announcing = 4,
    /// The parts of such messages.
    Parts = 5,
    /// What members of a window ask each other to change, where the device cannot.
    Asking = 6,
    /// Answers to that.
    Answering = 7,
}

/// The largest serial number.
pub(crate) const SERIAL_MAX: u32 = (1 << 29) - 1;

impl Context {
    /// The name that a process gives with a serial number up to [`SERIAL_MAX`].
    pub(crate) fn new(process: u32, serial: u32) -> Self {
        Self(u64::from(process) << 32 | u64::from(serial) << 3)
    }

    /// As messages have it.
    #[inline]
    pub(crate) fn plane(self, plane: Plane) -> u64 {
        self.0 | plane as u64
    }

    /// As it is told to others.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// As others tell it.
    pub(crate) fn from_number(number: u64) -> Self {
        Self(number & !7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_planes_are_distinct() {
        let mut all = Vec::new();
        for (process, serial) in [(0, 0), (0, 1), (1, 0), (u32::MAX, SERIAL_MAX), (0, SERIAL_MAX)] {
            let context = Context::new(process, serial);
            assert_eq!(Context::from_number(context.number()), context);
            let planes = [Plane::Point, Plane::Collective, Plane::Making, Plane::Side];
            all.extend(planes.map(|plane| context.plane(plane)));
            let others = [Plane::Announcing, Plane::Parts, Plane::Asking, Plane::Answering];
            all.extend(others.map(|plane| context.plane(plane)));
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40);
    }
}
