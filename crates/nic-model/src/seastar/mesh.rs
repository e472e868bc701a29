//! [`Mesh`]: routers and cables. A packet is routed first in the first dimension, then in the second, then in
//! the third; its head proceeds as soon as the next cable is free, and its tail follows.

use host::{Span, Time};

use crate::machine::Router;
use crate::parts::{at_rate, ns};

/// Cables that leave a router.
const CABLES: usize = 6;

/// All routers of a machine. A message is one worm: packets of several messages do not interleave on a cable.
pub(super) struct Mesh {
    nodes: [usize; 3],
    is_torus: [bool; 3],
    hop: Span,
    mbps: f64,
    /// Until when cables are busy, six for each router.
    busy: Vec<Time>,
}

impl Mesh {
    pub(super) fn new(router: &Router) -> Self {
        let nodes = [router.x_nodes as usize, router.y_nodes as usize, router.z_nodes as usize];
        let is_torus = [router.x_torus_flag, router.y_torus_flag, router.z_torus_flag];
        let busy = vec![Time::ZERO; nodes.iter().product::<usize>() * CABLES];
        Self { nodes, is_torus, hop: ns(router.hop_ns), mbps: router.link_mbps, busy }
    }

    /// Number of cards.
    pub(super) fn len(&self) -> usize {
        self.nodes.iter().product()
    }

    /// The coordinates of a card: numbers increase in the third dimension first.
    fn coordinates(&self, node: usize) -> [usize; 3] {
        let [_, y, z] = self.nodes;
        [node / (y * z), node / z % y, node % z]
    }

    fn number(&self, [x, y, z]: [usize; 3]) -> usize {
        (x * self.nodes[1] + y) * self.nodes[2] + z
    }

    /// The cables from one card to another, in order.
    fn route(&self, from: usize, to: usize) -> impl Iterator<Item = usize> + use<'_> {
        let (mut at, goal) = (self.coordinates(from), self.coordinates(to));
        std::iter::from_fn(move || {
            let dimension = (0..3).find(|dimension| at[*dimension] != goal[*dimension])?;
            let len = self.nodes[dimension];
            let forward_steps = (goal[dimension] + len - at[dimension]) % len;
            let forward = if self.is_torus[dimension] {
                2 * forward_steps <= len
            } else {
                goal[dimension] > at[dimension]
            };
            let cable = self.number(at) * CABLES + 2 * dimension + usize::from(forward);
            at[dimension] = (at[dimension] + if forward { 1 } else { len - 1 }) % len;
            Some(cable)
        })
    }

    /// Transports `bytes`, the first of which leaves at `at`; returns when that byte arrives.
    pub(super) fn transport(&mut self, from: usize, to: usize, at: Time, bytes: u64) -> Time {
        let cables: Vec<usize> = self.route(from, to).collect();
        let (mut head, long) = (at, self.time(bytes));
        for cable in cables {
            let begins = head.max(self.busy[cable]);
            self.busy[cable] = begins + long;
            head = begins + self.hop;
        }
        head
    }

    /// The time that this many bytes take to pass.
    pub(super) fn time(&self, bytes: u64) -> Span {
        at_rate(bytes, self.mbps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(torus: bool) -> Mesh {
        Mesh::new(&Router {
            hop_ns: 10.0,
            link_mbps: 1000.0,
            packet_bytes: 64.0,
            x_nodes: 3.0,
            y_nodes: 4.0,
            z_nodes: 6.0,
            z_torus_flag: torus,
            ..Router::default()
        })
    }

    fn hops(mesh: &Mesh, from: usize, to: usize) -> usize {
        mesh.route(from, to).count()
    }

    #[test]
    fn route_length_is_the_sum_of_its_dimensions() {
        let (open, closed) = (mesh(false), mesh(true));
        assert_eq!(open.len(), 72);
        assert_eq!((hops(&open, 0, 0), hops(&open, 0, 1), hops(&open, 0, 5)), (0, 1, 5));
        assert_eq!((hops(&closed, 0, 5), hops(&closed, 0, 3), hops(&closed, 0, 4)), (1, 3, 2));
        assert_eq!((hops(&closed, 0, 6), hops(&closed, 0, 71)), (1, 2 + 3 + 1));
        for from in 0..72 {
            for to in 0..72 {
                assert_eq!(hops(&closed, from, to), hops(&closed, to, from), "{from} to {to}");
            }
        }
    }

    #[test]
    fn cable_transmits_messages_one_after_the_other() {
        let (mut mesh, at) = (mesh(true), Time::ZERO);
        let ns = |n| at + Span::from_ns(n);
        assert_eq!(mesh.transport(0, 2, at, 100), ns(20));
        assert_eq!(mesh.transport(0, 1, at, 100), ns(110), "behind the first");
        assert_eq!(mesh.transport(1, 0, at, 100), ns(10), "the other way");
        assert_eq!(mesh.transport(1, 2, ns(300), 100), ns(310));
    }
}
