//! [`Server`]: a resource that serves requests in the order of the calls.

use host::{Span, Time};

/// First come, first served. Call it in the order of time: a later call is served later.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Server {
    free_at: Time,
}

impl Server {
    /// Occupies the resource for `span` once it is free, from `now` on at the earliest; returns the end.
    pub(crate) fn reserve(&mut self, now: Time, span: Span) -> Time {
        self.free_at = self.free_at.max(now) + span;
        self.free_at
    }

    /// When it will have served all requests.
    pub(crate) fn free_at(&self) -> Time {
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_serves_in_call_order() {
        let (mut server, us) = (Server::default(), |n| Time::ZERO + Span::from_us(n));
        assert_eq!(server.reserve(us(10), Span::from_us(5)), us(15));
        assert_eq!(server.reserve(us(12), Span::from_us(5)), us(20), "behind the first");
        assert_eq!(server.reserve(us(30), Span::from_us(1)), us(31), "idle in between");
        assert_eq!(server.free_at(), us(31));
    }
}
