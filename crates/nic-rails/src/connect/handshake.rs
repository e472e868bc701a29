//! Builds the handshake data that this side sends when a lane is connected.

use verbs::ConnParam;

use crate::connect::hello::{Hello, LaneHello, RequestKind};
use crate::qp::QpInner;

/// The beginning of every answer and request.
pub(crate) fn hello(qp: &QpInner, kind: RequestKind, lane: usize, token: u64) -> Hello {
    Hello {
        kind,
        rails: qp.width() as u8,
        lane: lane as u8,
        recv_lane: qp.receiving.lane(&qp.shared().host) as u8,
        token,
        table: qp.context.pd.table_location(lane),
        invalid_key: qp.shared().no_access_region(lane).rkey(),
    }
}

/// The handshake data on a further lane, or on any lane that is connected again.
pub(crate) fn lane_handshake(qp: &QpInner, lane: usize, token: u64, generation: u32) -> Vec<u8> {
    let mut lane_hello = Vec::new();
    let keys = (qp.context.report_buffer.rkey(lane), qp.context.report_buffer.rkey(0));
    LaneHello { generation, report_buffer: qp.context.report_buffer.addr(), keys }.write(&mut lane_hello);
    hello(qp, RequestKind::Join, lane, token).write(&lane_hello)
}

/// The program's parameters adapted for a lane: one more read each way, for reading key tables.
pub(crate) fn lane_param(param: &ConnParam, private_data: Vec<u8>) -> ConnParam {
    ConnParam {
        private_data,
        responder_resources: param.responder_resources.saturating_add(1),
        initiator_depth: param.initiator_depth.saturating_add(1),
        ..param.clone()
    }
}
