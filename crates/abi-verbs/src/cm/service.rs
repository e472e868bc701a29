//! Port space UDP: a listener is a datagram service, and connecting asks for its queue pair (service ID resolution, IBA 13.4).
//!
//! The query is a connect request and the answer its rejection, with their contents in the private data. No connection results.

use rdma_abi::verbs::{ibv_ah_attr, ibv_gid, ibv_global_route};

/// The first bytes of both messages.
const MAGIC: [u8; 8] = *b"NICETYS1";
/// Length of an answer before the program's data: magic, GID, queue pair number and key.
const HEAD: usize = 32;

/// The destination of datagrams for a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) gid: ibv_gid,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

/// Encodes a query with the program's private data.
pub(crate) fn encode_query(private_data: &[u8]) -> Vec<u8> {
    [&MAGIC, private_data].concat()
}

/// The program's private data in a query; `None` for an ordinary connect request.
pub(crate) fn decode_query(private_data: &[u8]) -> Option<&[u8]> {
    private_data.strip_prefix(&MAGIC)
}

impl Service {
    pub(crate) fn encode(&self, private_data: &[u8]) -> Vec<u8> {
        let (number, key) = (self.qp_num.to_be_bytes(), self.qkey.to_be_bytes());
        [&MAGIC[..], &self.gid.raw, &number, &key, private_data].concat()
    }

    /// The service and its program's private data; `None` for a refusal.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, private_data) = bytes.split_first_chunk::<HEAD>()?;
        let head = decode_query(head)?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut gid = ibv_gid::default();
        gid.raw.copy_from_slice(&head[..16]);
        Some((Self { gid, qp_num: word(16), qkey: word(20) }, private_data))
    }

    /// The address vector of the service.
    pub(crate) fn vector(&self) -> ibv_ah_attr {
        let grh =
            ibv_global_route { dgid: self.gid, flow_label: 0, sgid_index: 0, hop_limit: 1, traffic_class: 0 };
        ibv_ah_attr { grh, dlid: 0, sl: 0, src_path_bits: 0, static_rate: 0, is_global: 1, port_num: 1 }
    }
}

#[cfg(test)]
mod tests {
    use rdma_abi::numbers::RDMA_UDP_QKEY;

    use super::*;

    #[test]
    fn questions_and_answers_are_read_back_and_refusals_are_none() {
        assert_eq!(decode_query(&encode_query(b"please")), Some(&b"please"[..]));
        assert_eq!(decode_query(b"a connection"), None);
        let gid = ibv_gid { raw: std::array::from_fn(|at| at as u8) };
        let service = Service { gid, qp_num: 0x01_0203, qkey: RDMA_UDP_QKEY };
        let bytes = service.encode(b"here");
        assert_eq!(Service::decode(&bytes), Some((service, &b"here"[..])));
        assert_eq!(Service::decode(&bytes[..HEAD - 1]), None);
        assert_eq!(Service::decode(b"no, says the program of the other side"), None);
        assert_eq!(service.vector().grh.dgid, gid);
    }
}
