//! [`Queue`]: what happened to each queue, in numbers.

use std::collections::BTreeMap;

use crate::job::Process;
use crate::read::{Class, What};
use crate::requests::Depth;

/// A send queue, or the receive queue of a queue pair or a shared one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The object.
    pub object: u32,
    /// Whether it is a send queue.
    pub is_send: bool,
    /// Its name for people.
    pub name: String,
    /// Its entries; 0 if that is unknown.
    pub size: u32,
    /// The most requests in it at a time.
    pub deepest: u32,
    /// For how long it had no free entry, in picoseconds.
    pub full_ps: u64,
    /// For how long it was empty, from its first request on.
    pub empty_ps: u64,
    /// Posted requests.
    pub posted: u64,
    /// Requests that could not be posted.
    pub refused: u64,
    /// Requests that have ended with an error.
    pub failed: u64,
    /// Requests without any completion until the end of the trace.
    pub open: u64,
    /// The median and the longest time from posting to completion.
    pub times_ps: Option<(u64, u64)>,
}

/// The queues of a process that had requests.
#[must_use]
pub fn queues(process: &Process) -> Vec<Queue> {
    let mut found: BTreeMap<(u32, bool), (Queue, Vec<u64>)> = BTreeMap::new();
    let (trace, requests) = (&process.trace, &process.requests);
    for record in trace.records.iter().filter(|record| matches!(record.what, What::Send | What::Recv)) {
        let (queue, _) = found.entry((record.fields.object, record.what == What::Send)).or_default();
        let count = if record.has_failed() { &mut queue.refused } else { &mut queue.posted };
        *count += 1;
    }
    for request in &requests.all {
        let posted = &trace.records[request.posted];
        let (queue, times) = found.entry((posted.fields.object, posted.what == What::Send)).or_default();
        match request.completed.map(|at| &trace.records[at]) {
            Some(done) if !request.is_implied => {
                times.push(done.fields.time_ps.saturating_sub(posted.fields.time_ps));
                queue.failed += u64::from(done.has_failed());
            }
            Some(_) => {}
            None => queue.open += 1,
        }
    }
    let last = trace.last_ps();
    let fill = |((object, is_send), (mut queue, mut times)): ((u32, bool), (Queue, Vec<u64>))| {
        (queue.object, queue.is_send) = (object, is_send);
        let known = trace.objects.get(&object);
        let peer = known.filter(|known| known.class == Class::Qp && !known.name.is_empty());
        let peer = peer.map(|known| format!(" to {}", known.name)).unwrap_or_default();
        let word = if is_send { "sends" } else { "receives" };
        queue.name = format!("{}{peer}, {word}", trace.object_name(object));
        queue.size = known.map_or(0, |known| match (known.class, is_send) {
            (Class::Qp, true) => known.sizes().0,
            (Class::Qp, false) => known.sizes().1,
            (Class::Srq, _) => known.words[1] as u32,
            _ => 0,
        });
        let depths = if is_send { &requests.send_depths } else { &requests.recv_depths };
        steps(&mut queue, depths.get(&object).map_or(&[], Vec::as_slice), last);
        times.sort_unstable();
        queue.times_ps = times.last().map(|longest| (times[times.len() / 2], *longest));
        queue
    };
    found.into_iter().map(fill).collect()
}

fn steps(queue: &mut Queue, steps: &[Depth], last_ps: u64) {
    for (at, step) in steps.iter().enumerate() {
        queue.deepest = queue.deepest.max(step.depth);
        let until = steps.get(at + 1).map_or(last_ps, |next| next.time_ps);
        let lasted = until.saturating_sub(step.time_ps);
        if step.depth == 0 {
            queue.empty_ps += lasted;
        } else if queue.size != 0 && step.depth >= queue.size {
            queue.full_ps += lasted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Job;
    use crate::format::{Fields, entry, flag, kind};
    use crate::read::tests::File;

    #[test]
    fn full_queue_is_found() {
        let mut file = File::new();
        file.qp(3, false);
        file.entry(entry::OBJECT, &[2 | 1 << 32, 1], "");
        for at in 0..4 {
            file.send(10 * at, 3, at, if at == 3 { flag::SIGNALED } else { 0 });
        }
        file.record(Fields { time_ps: 40, kind: kind::SEND, object: 3, result: 1, ..Fields::default() });
        file.completion(90, 0x30, 3, 0);
        file.send(100, 3, 9, flag::SIGNALED);
        file.completion(120, 0x30, 9, 8);
        let job = Job::new(vec![("x".into(), file.read())]);
        let [queue] = &queues(&job.processes[0])[..] else { panic!("one queue") };
        assert_eq!(queue.name, "qp 0x30 to 10.0.0.1:7, sends");
        assert_eq!((queue.size, queue.deepest, queue.full_ps, queue.empty_ps), (4, 4, 60, 10));
        assert_eq!((queue.posted, queue.refused, queue.failed, queue.open), (5, 1, 1, 0));
        assert_eq!(queue.times_ps, Some((60, 60)));
    }
}
