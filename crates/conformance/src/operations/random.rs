//! Thousands of random operations on both ends, compared with a model of the two memories.
//!
//! Operations come in batches from one end. Within a batch the model is sequential: IBA 9.5 orders everything except
//! that a read or atomic may be overtaken by later requests, so requests after one are fenced. Local sources never
//! change within a batch; results are stored in separate slots.

use crate::Env;
use crate::harness::check::{assert_same_bytes, pattern};
use crate::harness::conn::{Conn, Endpoint};
use host::Rng;
use verbs::{AtomicCap, Data, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode};

/// Bytes that peers access.
const REMOTE_LEN: usize = 4096;
/// Result and receive slots: their number and their size; they follow [`REMOTE_LEN`].
const SLOTS: usize = 16;
const SLOT: usize = 512;
/// Start of the source data, behind the slots.
const SOURCE: usize = REMOTE_LEN + SLOTS * SLOT;
/// Total size of each end's memory in bytes.
const TOTAL: usize = SOURCE + 4096;

/// The expected memory of one end.
type Model = Vec<u8>;

/// One batch: from `near` to `far`, with models of both.
struct Batch<'a> {
    near: &'a Endpoint,
    far: &'a Endpoint,
    rng: &'a mut Rng,
    near_model: &'a mut Model,
    far_model: &'a mut Model,
    atomics: bool,
    /// Slots used, at either end.
    results: usize,
    receives: usize,
    fetched: bool,
    want_sent: Vec<(u64, WcOpcode)>,
    want_received: Vec<(u64, WcOpcode, u32, Option<u32>)>,
}

impl Batch<'_> {
    fn run(&mut self, first_id: u64) {
        let count = 1 + self.rng.index(SLOTS);
        for i in 0..count {
            let id = first_id + i as u64;
            match self.rng.index(if self.atomics { 6 } else { 4 }) {
                0 => self.write(id, i + 1 == count),
                1 => self.write_imm(id, i + 1 == count),
                2 => self.send(id, i + 1 == count),
                3 => self.read(id),
                4 => self.compare_and_swap(id),
                _ => self.fetch_and_add(id),
            }
        }
        self.check_completions();
    }

    /// Random source elements and their bytes.
    fn random_source(&mut self, max: usize) -> (Vec<Sge>, Vec<u8>) {
        let (mut sges, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.index(self.near.qp.init().cap.max_send_sge as usize + 1) {
            let len = self.rng.index((max - bytes.len()).min(300) + 1);
            let at = SOURCE + self.rng.index(TOTAL - SOURCE - len + 1);
            sges.push(self.near.host.sge(at as u64, len as u32));
            bytes.extend_from_slice(&self.near_model[at..at + len]);
        }
        (sges, bytes)
    }

    fn post(&mut self, id: u64, op: SendOp, opcode: WcOpcode, data: Data<'_>, last: bool) {
        let signalled = last || self.rng.one_in(2);
        let mut flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        if self.fetched {
            flags |= SendFlags::FENCE;
        }
        self.near.post(&SendWr { wr_id: id, op, data, flags });
        if signalled {
            self.want_sent.push((id, opcode));
        }
    }

    /// Sends the elements, or at random the same bytes inline if they fit.
    fn post_bytes(&mut self, id: u64, op: SendOp, opcode: WcOpcode, sges: &[Sge], bytes: &[u8], last: bool) {
        let inline = bytes.len() <= self.near.qp.init().cap.max_inline as usize && self.rng.one_in(2);
        self.post(id, op, opcode, if inline { Data::Inline(bytes) } else { Data::Sges(sges) }, last);
    }

    fn random_target(&mut self, len: usize) -> usize {
        self.rng.index(REMOTE_LEN - len + 1)
    }

    fn write(&mut self, id: u64, last: bool) {
        let (sges, bytes) = self.random_source(REMOTE_LEN);
        let at = self.random_target(bytes.len());
        let op = SendOp::Write(self.far.host.remote(at as u64));
        self.post_bytes(id, op, WcOpcode::Write, &sges, &bytes, last);
        self.far_model[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    fn write_imm(&mut self, id: u64, last: bool) {
        let (sges, bytes) = self.random_source(REMOTE_LEN);
        let (at, imm) = (self.random_target(bytes.len()), self.rng.next_u64() as u32);
        self.far.post_recv(id, &[]);
        let op = SendOp::WriteImm(self.far.host.remote(at as u64), imm);
        self.post_bytes(id, op, WcOpcode::Write, &sges, &bytes, last);
        self.far_model[at..at + bytes.len()].copy_from_slice(&bytes);
        self.want_received.push((id, WcOpcode::RecvWriteImm, bytes.len() as u32, Some(imm)));
    }

    fn send(&mut self, id: u64, last: bool) {
        let (sges, bytes) = self.random_source(SLOT);
        let at = REMOTE_LEN + self.receives * SLOT;
        self.receives += 1;
        let imm = self.rng.one_in(2).then(|| self.rng.next_u64() as u32);
        let first = self.rng.index(bytes.len() + 1);
        let room = [
            self.far.host.sge(at as u64, first as u32),
            self.far.host.sge((at + first) as u64, (SLOT - first) as u32),
        ];
        let op = imm.map_or(SendOp::Send, SendOp::SendImm);
        // Sometimes the message arrives before its receive is posted.
        let late = self.rng.one_in(4);
        if !late {
            self.far.post_recv(id, &room);
        }
        self.post_bytes(id, op, WcOpcode::Send, &sges, &bytes, last);
        if late {
            self.far.post_recv(id, &room);
        }
        self.far_model[at..at + bytes.len()].copy_from_slice(&bytes);
        self.want_received.push((id, WcOpcode::Recv, bytes.len() as u32, imm));
    }

    /// Posts a request that fetches `bytes`; always signaled, because the next batch reuses the slot.
    fn fetch(&mut self, id: u64, op: SendOp, opcode: WcOpcode, bytes: &[u8]) {
        let at = REMOTE_LEN + self.results * SLOT;
        self.results += 1;
        self.post(id, op, opcode, Data::Sges(&[self.near.host.sge(at as u64, bytes.len() as u32)]), true);
        self.near_model[at..at + bytes.len()].copy_from_slice(bytes);
        self.fetched = true;
    }

    fn read(&mut self, id: u64) {
        let len = self.rng.index(SLOT + 1);
        let at = self.random_target(len);
        let bytes = self.far_model[at..at + len].to_vec();
        self.fetch(id, SendOp::Read(self.far.host.remote(at as u64)), WcOpcode::Read, &bytes);
    }

    fn word(&mut self) -> (usize, u64) {
        let at = self.rng.index(REMOTE_LEN / 8) * 8;
        (at, u64::from_ne_bytes(self.far_model[at..at + 8].try_into().expect("eight bytes")))
    }

    fn compare_and_swap(&mut self, id: u64) {
        let (at, old) = self.word();
        let compare = if self.rng.one_in(2) { old } else { self.rng.next_u64() };
        let swap = self.rng.next_u64();
        let remote = self.far.host.remote(at as u64);
        let op = SendOp::CompareSwap { remote, compare, swap };
        self.fetch(id, op, WcOpcode::CompareSwap, &old.to_ne_bytes());
        if old == compare {
            self.far_model[at..at + 8].copy_from_slice(&swap.to_ne_bytes());
        }
    }

    fn fetch_and_add(&mut self, id: u64) {
        let ((at, old), add) = (self.word(), self.rng.next_u64());
        let op = SendOp::FetchAdd { remote: self.far.host.remote(at as u64), add };
        self.fetch(id, op, WcOpcode::FetchAdd, &old.to_ne_bytes());
        self.far_model[at..at + 8].copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
    }

    fn check_completions(&mut self) {
        for &(id, opcode) in &self.want_sent {
            crate::harness::check::expect_success(self.near.next_sent(), id, opcode);
        }
        for &(id, opcode, len, imm) in &self.want_received {
            let wc: Wc = crate::harness::check::expect_success(self.far.next_received(), id, opcode);
            assert_eq!((wc.byte_len, wc.imm, wc.qp_num), (len, imm, self.far.qp.num()), "{wc:?}");
        }
        assert_eq!(self.near.send_cq.poll_one(), Ok(None), "one completion too many");
        assert_eq!(self.far.recv_cq.poll_one(), Ok(None), "one completion too many");
    }
}

/// Runs `batches` batches from a seed.
fn run_batches(env: &Env, seed: u64, batches: u64) {
    let c = Conn::with_setup(env, &crate::harness::conn::Setup { len: TOTAL, ..Default::default() });
    let mut rng = Rng::new(seed);
    let mut models: Vec<Model> = vec![pattern(seed, TOTAL), pattern(seed + 1, TOTAL)];
    for (end, model) in [&c.a, &c.b].into_iter().zip(&models) {
        end.host.buf().write(0, model).expect("the whole buffer");
    }
    let atomics = [&env.a, &env.b].iter().all(|d| d.attr().atomic_cap != AtomicCap::None);
    for batch in 0..batches {
        let (mut ends, from) = ([&c.a, &c.b], rng.index(2));
        let (left, right) = models.split_at_mut(1);
        let (mut near_model, mut far_model) = (&mut left[0], &mut right[0]);
        if from == 1 {
            ends.reverse();
            std::mem::swap(&mut near_model, &mut far_model);
        }
        let [near, far] = ends;
        let (want_sent, want_received) = (Vec::new(), Vec::new());
        let (results, receives, fetched) = (0, 0, false);
        let mut b = Batch {
            near,
            far,
            rng: &mut rng,
            near_model,
            far_model,
            atomics,
            results,
            receives,
            fetched,
            want_sent,
            want_received,
        };
        b.run(batch * 100);
        for (end, model) in [&c.a, &c.b].into_iter().zip(&models) {
            let got = end.host.buf().to_vec(0..TOTAL).expect("the whole buffer");
            assert_same_bytes(
                &format!("seed {seed}, after batch {batch}, {}", end.device.name()),
                &got,
                model,
            );
        }
    }
}

/// Prints the seed when the test fails.
fn run_with_seed(env: &Env, seed: u64, batches: u64) {
    struct PrintSeedOnPanic(u64);
    impl Drop for PrintSeedOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the random sequence failed with seed {}", self.0);
            }
        }
    }
    let _print_seed = PrintSeedOnPanic(seed);
    run_batches(env, seed, batches);
}

/// One long sequence: about 4,000 operations.
pub(crate) fn one_long_random_sequence(env: &Env) {
    run_with_seed(env, 20_260_101, 500);
}

/// Many short sequences from different seeds, each on its own connection.
pub(crate) fn many_short_random_sequences(env: &Env) {
    (0..40).for_each(|seed| run_with_seed(env, seed, 12));
}
