//! What a [`Process`] and a [`Comm`] report: gauges, messages and bytes sent, and happenings.

use pmi::profile::{Carried, Traffic};

use crate::comm::communicator::Comm;
use crate::p2p::engine::Engine;
use crate::process::Process;
use crate::tool::gauges::Gauge;
use crate::tool::happenings::{Happened, Watch};

impl Process {
    /// What a gauge shows now.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.core().with(|engine| engine.gauge(gauge))
    }

    /// The messages and bytes that this process has sent so far, to all others and itself.
    pub fn traffic(&self) -> Traffic {
        self.core().with(|engine| {
            let mut all = *engine.own();
            engine.transport.traffic().for_each(|(_, traffic)| all.add(traffic));
            all
        })
    }

    /// Begins or ceases to note happenings.
    pub fn watch(&self, on: bool) {
        self.core().with(|engine| engine.watch = on.then(Box::default));
    }

    /// The happenings since the last call; none while they are not noted.
    pub fn happened(&self) -> Happened {
        self.core().with(|engine| engine.watch.as_deref_mut().map(Watch::take).unwrap_or_default())
    }
}

impl Comm {
    /// The messages and bytes that this process has sent so far to each member, or to each of the remote group of an intercommunicator, in
    /// all communicators.
    pub fn sent(&self) -> Vec<Carried> {
        self.traffic().iter().map(Traffic::all).collect()
    }

    /// The figures of [`Comm::sent`], by protocol.
    pub fn traffic(&self) -> Vec<Traffic> {
        let rank = self.core().bootstrap().rank();
        let mut to = vec![Traffic::default(); self.peers().size() as usize];
        self.core().with(|engine: &mut Engine| {
            let own = (rank, engine.own());
            for (process, traffic) in engine.transport.traffic().chain([own]) {
                let member = self.peers().rank_of(process).and_then(|rank| to.get_mut(rank as usize));
                member.into_iter().for_each(|member| member.add(traffic));
            }
        });
        to
    }
}
