//! Reports of a [`Process`] and a [`Comm`]: gauges, messages and bytes sent, and events.

use pmi::profile::{MessageTotals, Traffic};

use crate::comm::communicator::Comm;
use crate::p2p::engine::Engine;
use crate::process::Process;
use crate::tool::events::{EventRecorder, ToolEvents};
use crate::tool::gauges::Gauge;

impl Process {
    /// The current value of a gauge.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.core().with(|engine| engine.gauge(gauge))
    }

    /// The messages and bytes that this process has sent to all processes, including itself.
    pub fn traffic(&self) -> Traffic {
        self.core().with(|engine| {
            let mut all = *engine.self_traffic();
            engine.transport.traffic().for_each(|(_, traffic)| all.add(traffic));
            all
        })
    }

    /// Starts or stops the recording of events.
    pub fn record_events(&self, on: bool) {
        self.core().with(|engine| engine.recorder = on.then(Box::default));
    }

    /// The events since the last call; none while recording is off.
    pub fn take_events(&self) -> ToolEvents {
        self.core()
            .with(|engine| engine.recorder.as_deref_mut().map(EventRecorder::take_all).unwrap_or_default())
    }
}

impl Comm {
    /// The messages and bytes that this process has sent to each member, or to each member of an intercommunicator's remote group,
    /// in all communicators.
    pub fn sent(&self) -> Vec<MessageTotals> {
        self.traffic().iter().map(Traffic::all).collect()
    }

    /// The figures of [`Comm::sent`], by protocol.
    pub fn traffic(&self) -> Vec<Traffic> {
        let rank = self.core().bootstrap().rank();
        let mut to = vec![Traffic::default(); self.peers().size() as usize];
        self.core().with(|engine: &mut Engine| {
            let own = (rank, engine.self_traffic());
            for (process, traffic) in engine.transport.traffic().chain([own]) {
                let member = self.peers().rank_of(process).and_then(|rank| to.get_mut(rank as usize));
                member.into_iter().for_each(|member| member.add(traffic));
            }
        });
        to
    }
}
