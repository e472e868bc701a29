//! Messages of 1 GiB; the maximum message size of IBA is 2^31 bytes (9.7.1).

use crate::Env;
use crate::harness::check::{assert_same_bytes, expect_success};
use crate::harness::conn::{Endpoint, Setup, connect};
use host::{Rng, mix};
use verbs::{Access, Buf, Mr, SendOp, SendWr, WcOpcode};

/// Bytes compared at a time.
const CHUNK: usize = 1 << 20;
/// Bytes of memory that must be free for two buffers of 1 GiB and everything else.
const NEEDED: u64 = 6 << 30;

/// Words that each depend on their position, cheap to generate.
fn chunk_of(seed: u64, chunk: usize, len: usize) -> Vec<u8> {
    let mut word = mix(seed ^ chunk as u64);
    let mut bytes = vec![0; len];
    for place in bytes.chunks_exact_mut(8) {
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn fill(buf: &Buf, seed: u64) {
    for (i, at) in (0..buf.len()).step_by(CHUNK).enumerate() {
        buf.write(at, &chunk_of(seed, i, CHUNK.min(buf.len() - at))).expect("inside");
    }
}

fn verify(what: &str, buf: &Buf, seed: u64) {
    for (i, at) in (0..buf.len()).step_by(CHUNK).enumerate() {
        let len = CHUNK.min(buf.len() - at);
        let got = buf.to_vec(at..at + len).expect("inside");
        assert_same_bytes(&format!("{what}, from byte {at}"), &got, &chunk_of(seed, i, len));
    }
}

/// Free memory in bytes, if the system reports it.
fn free_bytes() -> Option<u64> {
    let text = host::bounded::kernel_text("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// One write, one read and one send of 1 GiB, every byte compared. They share two buffers, because touching new memory
/// takes longer than the messages.
pub(crate) fn gibibyte_messages_arrive_both_ways(env: &Env) {
    let attr = (env.a.attr(), env.b.attr());
    let len = [
        env.large_message_bytes(),
        attr.0.max_msg_size,
        attr.0.max_mr_size,
        attr.1.max_msg_size,
        attr.1.max_mr_size,
    ];
    let len = (*len.iter().min().expect("five")).min(1 << 31) & !7;
    if len > NEEDED / 8 && free_bytes().is_some_and(|free| free < NEEDED) {
        eprintln!("SKIPPED: messages of {len} bytes need {NEEDED} bytes of free memory");
        return;
    }
    let setup = Setup::default();
    let (a, b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
    connect(env, &a, &b, &setup);
    let big = |end: &Endpoint| -> Mr {
        let buf = Buf::alloc(len as usize).expect("host memory");
        end.pd.reg_mr(&buf, Access::ALL - Access::REMOTE_ATOMIC).expect("a large region")
    };
    let (near, far) = (big(&a), big(&b));
    let seed = Rng::new(1).next_u64();
    fill(near.buf(), seed);
    let all = [near.sge(0, len as u32)];
    a.post(&SendWr::new(1, SendOp::Write(far.remote(0)), &all));
    expect_success(a.next_sent(), 1, WcOpcode::Write);
    verify("the write", far.buf(), seed);
    near.buf().fill(0);
    a.post(&SendWr::new(2, SendOp::Read(far.remote(0)), &all));
    assert_eq!(u64::from(expect_success(a.next_sent(), 2, WcOpcode::Read).byte_len), len);
    verify("the read", near.buf(), seed);
    far.buf().fill(0);
    b.post_recv(3, &[far.sge(0, len as u32)]);
    a.post(&SendWr::new(4, SendOp::Send, &all));
    assert_eq!(u64::from(expect_success(b.next_received(), 3, WcOpcode::Recv).byte_len), len);
    expect_success(a.next_sent(), 4, WcOpcode::Send);
    verify("the send", far.buf(), seed);
}

/// A large message is one byte too long for its region: no byte is written. (64 MiB.)
pub(crate) fn a_large_message_out_of_bounds(env: &Env) {
    let setup = Setup::default();
    let (a, b) = (Endpoint::new(env, &env.a, &setup), Endpoint::new(env, &env.b, &setup));
    connect(env, &a, &b, &setup);
    let len = env.large_message_bytes().min(64 << 20).min(env.a.attr().max_msg_size) as usize;
    let near = a.pd.reg_mr(&Buf::alloc(len).expect("memory"), Access::empty()).expect("a region");
    let far = b.pd.reg_mr(&Buf::alloc(len).expect("memory"), Access::ALL - Access::REMOTE_ATOMIC);
    let far = far.expect("a region");
    near.buf().fill(1);
    a.post(&SendWr::new(1, SendOp::Write(far.remote(1)), &[near.sge(0, len as u32)]));
    crate::harness::check::expect_failure(a.next_sent(), 1, verbs::WcStatus::RemAccessErr);
    for at in (0..len).step_by(CHUNK) {
        let got = far.buf().to_vec(at..len.min(at + CHUNK)).expect("inside");
        assert!(got.iter().all(|&b| b == 0), "something was written at {at} or behind");
    }
}

/// Large messages in sequence, with small ones between them, stay in order.
pub(crate) fn large_and_small_in_order(env: &Env) {
    let c = crate::harness::conn::Conn::with_setup(env, &Setup { len: 8 << 20, ..Setup::default() });
    fill(c.a.host.buf(), 5);
    let remote = c.b.host.remote(0);
    for i in 0..8 {
        c.b.post_recv(i, &[]);
        let len = (8 << 20) - (i as u32) * 7;
        c.a.post(&SendWr::new(10 + i, SendOp::WriteImm(remote, i as u32), &[c.a.host.sge(0, len)]));
        c.a.post(&SendWr::new(20 + i, SendOp::Write(remote), &[c.a.host.sge(0, 8)]));
    }
    for i in 0..8 {
        let wc = expect_success(c.b.next_received(), i, WcOpcode::RecvWriteImm);
        assert_eq!(wc.byte_len, (8 << 20) - (i as u32) * 7);
        expect_success(c.a.next_sent(), 10 + i, WcOpcode::Write);
        expect_success(c.a.next_sent(), 20 + i, WcOpcode::Write);
    }
    verify("eight large writes", c.b.host.buf(), 5);
}
