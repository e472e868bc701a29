//! [`Card`]: the limits of cards that programs meet later: what passes here and fails there is a finding.
//!
//! Sources: the cards' drivers in Linux and in rdma-core, and annex A17 of the InfiniBand specification for private data (the
//! first 36 bytes of a request are RDMA-CM's own).

use verbs::{DeviceAttr, QpCap};

use crate::report::{Kind, find};
use findings::Stack;

/// The limits of a kind of card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) name: &'static str,
    about: &'static str,
    max_qp_wr: u32,
    max_sge: u32,
    max_inline: u32,
    max_cqe: u32,
    max_msg_size: u64,
    max_rd_atomic: u32,
    /// Bytes of private data of a connect, an accept and a reject.
    private_data: [u32; 3],
}

/// The private data of RDMA-CM on InfiniBand and RoCE: those of REQ, REP and REJ.
const IB_PRIVATE_DATA: [u32; 3] = [56, 196, 148];

static CARDS: [Card; 2] = [
    // mlx5_calc_send_wqe: a work request has 1024 bytes; RC takes 192 for other segments, and 4 for the length.
    Card {
        name: "mlx5",
        about: "NVIDIA ConnectX-4 and later, BlueField",
        max_qp_wr: 32_768,
        max_sge: 30,
        max_inline: 828,
        max_cqe: 4_194_303,
        max_msg_size: 1 << 30,
        max_rd_atomic: 16,
        private_data: IB_PRIVATE_DATA,
    },
    // irdma_defs.h: IRDMA_MAX_WQ_FRAGMENT_COUNT, IRDMA_MAX_INLINE_DATA_SIZE, IRDMA_MAX_CQ_SIZE.
    Card {
        name: "irdma",
        about: "Intel E810",
        max_qp_wr: 4_063,
        max_sge: 13,
        max_inline: 101,
        max_cqe: 1_048_574,
        max_msg_size: (1 << 31) - 1,
        max_rd_atomic: 127,
        private_data: IB_PRIVATE_DATA,
    },
];

/// The names of the cards, each with what it is.
pub fn cards() -> impl Iterator<Item = (&'static str, &'static str)> {
    CARDS.iter().map(|card| (card.name, card.about))
}

/// The card of this name.
pub(crate) fn card(name: &str) -> Option<&'static Card> {
    CARDS.iter().find(|card| card.name == name)
}

/// Which message carries private data.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    /// A connect request.
    Connect,
    /// The answer that accepts it.
    Accept,
    /// The answer that rejects it.
    Reject,
}

impl Card {
    /// Reports a value beyond a limit.
    fn check(&self, what: &str, given: u64, limit: u64, object: &str, place: Stack) {
        if given <= limit {
            return;
        }
        let text = format!("{what}: {given}, and {} ({}) has at most {limit}", self.name, self.about);
        find(Kind::CardLimit, &text, &[("object", object.to_owned())], &[("called", place)]);
    }

    pub(crate) fn check_request(
        &self,
        request: &str,
        bytes: u64,
        sges: usize,
        inline: Option<u64>,
        posted: Stack,
    ) {
        self.check("the number of elements of a request", sges as u64, self.max_sge.into(), request, posted);
        self.check("the bytes of a message", bytes, self.max_msg_size, request, posted);
        self.check(
            "the inline bytes of a request",
            inline.unwrap_or(0),
            self.max_inline.into(),
            request,
            posted,
        );
    }

    pub(crate) fn check_qp(&self, cap: &QpCap, has_srq: bool) {
        let receives = if has_srq { (0, 0) } else { (cap.max_recv_wr, cap.max_recv_sge) };
        let place = Stack::here();
        for (what, given, limit) in [
            ("cap.max_send_wr", cap.max_send_wr, self.max_qp_wr),
            ("cap.max_recv_wr", receives.0, self.max_qp_wr),
            ("cap.max_send_sge", cap.max_send_sge, self.max_sge),
            ("cap.max_recv_sge", receives.1, self.max_sge),
            ("cap.max_inline_data", cap.max_inline, self.max_inline),
        ] {
            self.check(what, given.into(), limit.into(), "a new queue pair", place);
        }
    }

    pub(crate) fn check_cq(&self, cqe: u32) {
        self.check("cqe", cqe.into(), self.max_cqe.into(), "a completion queue", Stack::here());
    }

    pub(crate) fn check_private_data(&self, message: Message, bytes: usize) {
        let (at, object) = match message {
            Message::Connect => (0, "rdma_connect"),
            Message::Accept => (1, "rdma_accept"),
            Message::Reject => (2, "rdma_reject"),
        };
        let limit = self.private_data[at].into();
        self.check("the bytes of private data", bytes as u64, limit, object, Stack::here());
    }

    /// The attributes that a program sees of a device with the limits of the card.
    pub(crate) fn reported(&self, attr: &mut DeviceAttr) {
        attr.max_qp_wr = attr.max_qp_wr.min(self.max_qp_wr);
        attr.max_srq_wr = attr.max_srq_wr.min(self.max_qp_wr);
        attr.max_sge = attr.max_sge.min(self.max_sge);
        attr.max_inline = attr.max_inline.min(self.max_inline);
        attr.max_cqe = attr.max_cqe.min(self.max_cqe);
        attr.max_msg_size = attr.max_msg_size.min(self.max_msg_size);
        attr.max_rd_atomic = attr.max_rd_atomic.min(self.max_rd_atomic);
    }
}
