//! Tests of the conformance suite that Linux's software cards fail with our device `hw`, each with its reason. Seen on Linux 6.1.

/// A test, or a group of tests by the beginning of their names.
pub(crate) struct Difference {
    tests: &'static str,
    pub(crate) why: &'static str,
}

impl Difference {
    const fn new(tests: &'static str, why: &'static str) -> Self {
        Self { tests, why }
    }

    /// Whether it concerns this test, or a line that begins with its name.
    pub(crate) fn is_of(&self, line: &str) -> bool {
        line.starts_with(self.tests)
    }
}

const STATUS: &str = "driver: LOC_QP_OP_ERR where the specification has LOC_PROT_ERR or LOC_LEN_ERR";
const INVALIDATE: &str = "driver: regions of user space cannot be invalidated";
const SIZE: &str = "driver: messages of at most 8 MiB";
const PROVIDER: &str = "provider: refused by the call, not by a completion";
const FLUSH: &str = "driver: requests behind a refused one get its status, and are not flushed";
const EFFECT: &str =
    "driver: a request takes effect, in whole or in part, although its local memory is refused";

/// All of a card.
pub(crate) struct Differences {
    pub(crate) tests: &'static [Difference],
    /// The function in which the kernel is known to crash.
    pub(crate) crash: Option<&'static str>,
}

pub(crate) const RXE: Differences = Differences { tests: RXE_TESTS, crash: None };
/// The kernel dereferences NULL there; which test it is differs.
pub(crate) const SIW: Differences = Differences { tests: &[], crash: Some("siw_tx_hdt") };

const RXE_TESTS: &[Difference] = &[
    Difference::new(
        "lost_memory::registering_checks_accessibility",
        "kernel: memory that may only be read is not registered",
    ),
    Difference::new("send_recv::sixteen_mebibytes_arrive", SIZE),
    Difference::new("write::sixteen_mebibytes_arrive", SIZE),
    Difference::new("read::sixteen_mebibytes_arrive", SIZE),
    Difference::new("send_recv::too_long_message", STATUS),
    Difference::new("send_recv::recv_one_byte_into_bad_lkey_fails", STATUS),
    Difference::new(
        "send_recv::recv_zero_bytes_ignores_bad_lkey",
        "driver: keys of receives are checked although no byte lands",
    ),
    Difference::new("send_recv::send_inv_right_behind_a_wait_completes", INVALIDATE),
    Difference::new("send_forms::invalidate", INVALIDATE),
    Difference::new(
        "send_forms::invalidating_",
        "driver: a send that invalidates a wrong key succeeds at the sender",
    ),
    Difference::new("atomics::unaligned_targets_are_refused", PROVIDER),
    Difference::new("atomics::result_length_other_than_8_is_refused", PROVIDER),
    Difference::new(
        "remote_violations::the_target_gets_an_asynchronous_event",
        "driver: no asynchronous event of the target",
    ),
    Difference::new("remote_violations::", FLUSH),
    Difference::new("local_violations::access_one_byte_", EFFECT),
    Difference::new("local_violations::overflowing_address_fails", EFFECT),
    Difference::new("local_violations::results_need_local_write", EFFECT),
    Difference::new("local_violations::request_with_one_bad_piece_fails", EFFECT),
    Difference::new("local_violations::", STATUS),
    Difference::new(
        "limits::post_send_to_full_queue_is_refused",
        "driver: queues are deeper than asked for, and than the suite expects",
    ),
];
