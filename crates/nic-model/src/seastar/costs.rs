//! [`Costs`]: processing times, computed from the machine's values.

use host::Span;
use host::world::HostCosts;

use crate::machine::{FlowKind, MatchKind, Params};
use crate::parts::calls::steps;
use crate::parts::{at_rate, ns};

/// Costs of the processor that runs programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessorCosts {
    /// A command, before its program gets it.
    pub(super) command: Span,
    /// A message, before its program gets it.
    pub(super) receive: Span,
    pub(super) transmit: Span,
    pub(super) deposit: Span,
    event: Span,
    /// Each eight bytes of an event or a reply.
    word: Span,
    pub(super) each_match: Span,
    /// An acknowledgement, at either end.
    pub(super) protocol: Span,
}

impl ProcessorCosts {
    /// The cost of writing a record of `bytes` bytes for the program's process.
    pub(super) fn record_cost(&self, bytes: usize) -> Span {
        self.event + self.word * bytes.div_ceil(8) as u64
    }
}

/// All processing times; constant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) place: MatchKind,
    pub(super) flow: FlowKind,
    pub(super) running: ProcessorCosts,
    /// Costs of the card's processor for messages of programs that the kernel runs.
    pub(super) card_receive: Span,
    pub(super) card_transmit: Span,
    pub(super) card_deposit: Span,
    pub(super) card_event: Span,
    pub(super) card_protocol: Span,
    pub(super) complete: Span,
    pub(super) turn: Span,
    pub(super) trap: Span,
    pub(super) interrupt: Span,
    pub(super) post: Span,
    pub(super) write: Span,
    pub(super) read: Span,
    pub(super) backoff: Span,
    read_mbps: f64,
    write_mbps: f64,
    copy_mbps: f64,
    copy: Span,
    pub(super) pio_bytes: u64,
    pub(super) packet_bytes: u64,
    pub(super) streams: usize,
    /// Maximum number of programs that fit into the card's memory.
    pub(super) programs: usize,
    pub(super) host: HostCosts,
}

impl Costs {
    pub(super) fn new(params: &Params) -> Self {
        let Params { mode, processor, kernel, hypertransport, firmware, router, .. } = params;
        let is_nic = mode.match_kind == MatchKind::Nic;
        // Flow control is done by the kernel for cop, else by the card.
        let (of_kernel, of_card) = match mode.flow_kind {
            FlowKind::None => (0.0, 0.0),
            FlowKind::Corpse => (0.0, firmware.number_ns),
            FlowKind::Cop => (kernel.number_ns, 0.0),
        };
        let running = if is_nic {
            ProcessorCosts {
                command: ns(firmware.command_ns),
                receive: ns(firmware.receive_ns + firmware.receive_match_ns + of_card),
                transmit: ns(firmware.transmit_ns + firmware.transmit_match_ns + of_card),
                deposit: ns(firmware.deposit_ns),
                event: ns(firmware.event_ns),
                word: Span::ZERO,
                each_match: ns(firmware.match_ns),
                protocol: ns(firmware.protocol_ns),
            }
        } else {
            ProcessorCosts {
                command: ns(kernel.call_ns),
                receive: ns(kernel.receive_ns + of_kernel),
                transmit: ns(kernel.transmit_ns + of_kernel),
                deposit: ns(kernel.deposit_ns),
                event: Span::ZERO,
                word: ns(kernel.word_ns),
                each_match: ns(kernel.match_ns),
                protocol: ns(kernel.protocol_ns),
            }
        };
        let copy_ps_per_byte = 1e6 / processor.copy_mbps;
        let room = (firmware.memory_kib - firmware.image_kib).max(0.0) / firmware.mailbox_kib;
        Self {
            place: mode.match_kind,
            flow: mode.flow_kind,
            running,
            card_receive: ns(firmware.receive_ns + of_card),
            card_transmit: ns(firmware.transmit_ns + of_card),
            card_deposit: ns(firmware.deposit_ns),
            card_event: ns(firmware.event_ns),
            card_protocol: ns(firmware.protocol_ns),
            complete: ns(firmware.complete_ns),
            turn: ns(firmware.turn_ns),
            trap: ns(kernel.trap_ns),
            interrupt: ns(kernel.interrupt_ns + kernel.interrupt_reads * hypertransport.read_ns),
            post: ns(hypertransport.post_ns),
            write: ns(hypertransport.write_ns),
            read: ns(hypertransport.read_ns),
            backoff: ns(firmware.backoff_ns),
            read_mbps: hypertransport.read_mbps,
            write_mbps: hypertransport.write_mbps,
            copy_mbps: processor.copy_mbps,
            copy: ns(processor.copy_ns),
            pio_bytes: firmware.pio_bytes as u64,
            packet_bytes: router.packet_bytes as u64,
            streams: firmware.stream_count as usize,
            // The kernel has one mailbox for all programs.
            programs: if is_nic { room as usize } else { usize::MAX },
            host: HostCosts {
                poll: ns(processor.poll_word_ns),
                copy: ns(processor.copy_ns),
                copy_ps_per_byte,
                fork: Span::ZERO,
                steps: steps(params),
            },
        }
    }

    /// How long the card takes to read this many bytes of host memory, without the latency of the first.
    pub(super) fn read_time(&self, bytes: u64) -> Span {
        at_rate(bytes, self.read_mbps)
    }

    /// How long the card takes to write this many bytes to host memory.
    pub(super) fn write_time(&self, bytes: u64) -> Span {
        at_rate(bytes, self.write_mbps)
    }

    /// The cost of a copy by the host's processor.
    pub(super) fn copy_time(&self, bytes: u64) -> Span {
        self.copy + at_rate(bytes, self.copy_mbps)
    }

    /// Whether data of this length travel with their header.
    pub(super) fn is_short(&self, bytes: u64) -> bool {
        bytes <= self.pio_bytes
    }
}
