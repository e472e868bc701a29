//! The memory use of an idle connection.

use verbs::{CmEvent, ConnParam, Device, Qp, QpInit};

use crate::raw::device;
use crate::support::child::{Child, recv_line, send_line};
use crate::support::endpoint::{at, deadline};
use crate::support::{one_at_a_time, traces};

/// Number of connections.
const COUNT: usize = 1000;

fn memory_field(file: &str, name: &str) -> usize {
    let text = std::fs::read_to_string(file).expect("a status");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn queue_pairs(device: &Device) -> Vec<Qp> {
    let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(4096).expect("a queue"));
    (0..COUNT).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect()
}

/// Child: connects two devices of its own; prints bytes per endpoint, and descriptors and threads in total.
pub(crate) fn memory_role() {
    let (a, b) = (device(), device());
    let (near_cm, far_cm) = (a.create_cm().expect("a channel"), b.create_cm().expect("a channel"));
    let listener = far_cm.listen(at(0), 64).expect("a listener");
    let look = || {
        (
            memory_field("/proc/self/status", "VmRSS:"),
            traces::descriptors(),
            memory_field("/proc/self/status", "Threads:"),
        )
    };
    let before = look();
    let (near, far) = (queue_pairs(&a), queue_pairs(&b));
    let alone = ((look().0 - before.0) << 10) / (2 * COUNT);
    for (near, far) in near.iter().zip(&far) {
        near_cm.connect(near, listener.addr(), &ConnParam::default()).expect("asked");
        match far_cm.get_event(deadline()).expect("an event") {
            CmEvent::ConnectRequest(request) => far_cm.accept(request, far, &ConnParam::default()),
            other => panic!("{other:?}"),
        }
        .expect("accepted");
        for cm in [&near_cm, &far_cm] {
            assert!(matches!(cm.get_event(deadline()), Ok(CmEvent::Established { .. })));
        }
    }
    let after = look();
    let bytes = ((after.0 - before.0) << 10) / (2 * COUNT);
    send_line(format!("{bytes} {} {} {alone}", after.1 - before.1, after.2 - before.2));
    recv_line();
    drop((near, far));
}

/// Goal: an idle connection uses at most 32 KiB of our memory at each end, one descriptor and no thread. Method: 1000
/// connections with queue pairs of the default size; measures the growth of resident memory, which excludes the
/// kernel's socket memory.
#[test]
fn idle_connection_uses_little_memory() {
    let _gate = one_at_a_time();
    let mut child = Child::start("memory");
    let said = child.recv_line();
    let words: Vec<usize> = said.split(' ').map(|word| word.parse().expect("a number")).collect();
    println!("an idle connection takes {} B at each end, {} B of it for the queue pair", words[0], words[3]);
    assert!(words[0] <= 32 << 10, "{} B", words[0]);
    assert_eq!((words[1], words[2]), (2 * COUNT, 0), "descriptors and threads");
    child.send_line("end");
    child.end();
}
