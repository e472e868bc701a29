//! [`Requests`]: each request from its posting to its completion, the depths of queues over time, and waits.
//!
//! A request ends when the program polls its completion. One without a completion of its own ends with the next request of its
//! queue that has one, as a program learns it (IBA 10.8.6).

use std::collections::{BTreeMap, VecDeque};

use crate::format::flag;
use crate::names::Operation;
use crate::read::{Class, Record, Trace, What};

/// A posted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The record of its posting, by its place in [`Trace::records`].
    pub posted: usize,
    /// The record of the completion that ended it; of a request without completion, that of a later one.
    pub completed: Option<usize>,
    /// Whether the completion is that of a later request.
    pub is_implied: bool,
    /// When it ended, in picoseconds of the process's clock: also by the end of its queue pair.
    pub ended_ps: Option<u64>,
}

/// The requests in a queue from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The time, in picoseconds of the process's clock.
    pub time_ps: u64,
    /// The requests.
    pub depth: u32,
}

/// A thread that slept, or was about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The thread.
    pub thread: u16,
    /// For what it waited first.
    pub object: u32,
    /// Its beginning, in picoseconds of the process's clock.
    pub from_ps: u64,
    /// Its end: the next record of the thread.
    pub to_ps: u64,
}

/// The requests of a process, and what follows from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// The requests, by the time of their posting.
    pub all: Vec<Request>,
    /// The depths of send queues, by queue pair.
    pub send_depths: BTreeMap<u32, Vec<Depth>>,
    /// The depths of receive queues, by queue pair or shared receive queue.
    pub recv_depths: BTreeMap<u32, Vec<Depth>>,
    /// The waits.
    pub waits: Vec<Wait>,
    /// For a record of a completion, the request that it belongs to.
    pub of_completion: BTreeMap<usize, usize>,
}

/// Finds requests in the order of records.
struct Finder<'a> {
    trace: &'a Trace,
    /// Queue pairs by device and the number in completions, with the time of their creation.
    by_number: BTreeMap<(u32, u32), Vec<(u64, u32)>>,
    /// Requests that have not ended: of send queues, and of receive queues.
    sends: BTreeMap<u32, VecDeque<usize>>,
    recvs: BTreeMap<u32, VecDeque<usize>>,
    found: Requests,
}

impl Requests {
    /// The requests of a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut by_number: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, object) in trace.objects.iter().filter(|(_, object)| object.class == Class::Qp) {
            by_number
                .entry((object.device, object.reported_number()))
                .or_default()
                .push((object.created_ps, *id));
        }
        let (sends, recvs, found) = (BTreeMap::new(), BTreeMap::new(), Self::default());
        let mut finder = Finder { trace, by_number, sends, recvs, found };
        for (at, record) in trace.records.iter().enumerate() {
            finder.add(at, record);
        }
        let mut found = finder.found;
        found.waits = waits(trace);
        found
    }
}

impl Finder<'_> {
    fn add(&mut self, at: usize, record: &Record) {
        let fields = &record.fields;
        match record.what {
            What::Send | What::Recv if record.has_failed() => {}
            What::Send => self.post(at, record, true),
            What::Recv => self.post(at, record, false),
            What::Completion => self.complete(at, record),
            What::Call if fields.code == crate::names::Call::DestroyQp as u8 => {
                for is_send in [true, false] {
                    let ended = self.queue(fields.object, is_send).drain(..).collect::<Vec<_>>();
                    for request in &ended {
                        self.found.all[*request].ended_ps = Some(fields.time_ps);
                    }
                    if !ended.is_empty() {
                        self.note_depth(fields.object, is_send, fields.time_ps);
                    }
                }
            }
            _ => {}
        }
    }

    fn queue(&mut self, id: u32, is_send: bool) -> &mut VecDeque<usize> {
        let queues = if is_send { &mut self.sends } else { &mut self.recvs };
        queues.entry(id).or_default()
    }

    fn note_depth(&mut self, id: u32, is_send: bool, time_ps: u64) {
        let depth = self.queue(id, is_send).len() as u32;
        let depths = if is_send { &mut self.found.send_depths } else { &mut self.found.recv_depths };
        depths.entry(id).or_default().push(Depth { time_ps, depth });
    }

    fn post(&mut self, at: usize, record: &Record, is_send: bool) {
        let request = self.found.all.len();
        self.found.all.push(Request { posted: at, completed: None, is_implied: false, ended_ps: None });
        self.queue(record.fields.object, is_send).push_back(request);
        self.note_depth(record.fields.object, is_send, record.fields.time_ps);
    }

    /// The queue pairs with this number in completions that existed, the latest first. A queue pair that is connected with
    /// itself is two with one number: one sends, the other one receives.
    fn qps_of(&self, record: &Record) -> Vec<u32> {
        let device = self.trace.objects.get(&record.fields.object).map_or(0, |cq| cq.device);
        let known = self.by_number.get(&(device, record.fields.other)).into_iter().flatten();
        let mut before: Vec<_> = known.filter(|(created, _)| *created <= record.fields.time_ps).collect();
        before.sort_unstable_by(|a, b| b.cmp(a));
        before.into_iter().map(|(_, id)| *id).collect()
    }

    fn complete(&mut self, at: usize, record: &Record) {
        let _ = self.qps_of(record).into_iter().any(|qp| self.complete_on(at, record, qp));
    }

    /// Ends the request of this queue pair that a completion belongs to; returns whether there is one.
    fn complete_on(&mut self, at: usize, record: &Record, qp: u32) -> bool {
        let Some(object) = self.trace.objects.get(&qp) else { return false };
        let is_send = record.fields.code < Operation::Recv as u8;
        let id = if is_send { qp } else { object.srq().unwrap_or(qp) };
        let (records, requests) = (&self.trace.records, &self.found.all);
        let posted = |request: usize| &records[requests[request].posted].fields;
        let is_signaled =
            |request: usize| object.signals_all() || posted(request).flags & flag::SIGNALED != 0;
        let queues = if is_send { &mut self.sends } else { &mut self.recvs };
        let queue = queues.entry(id).or_default();
        let is_own = |request: &usize| {
            posted(*request).id == record.fields.id
                && is_rest(posted(*request).code) == is_rest(record.fields.code)
                && (!is_send || record.has_failed() || is_signaled(*request))
        };
        let Some(found) = queue.iter().position(is_own) else { return false };
        let mut ended = Vec::new();
        let mut place = 0;
        queue.retain(|request| {
            let ends = place == found || is_send && place < found && !is_signaled(*request);
            if ends {
                ended.push((*request, place != found));
            }
            place += 1;
            !ends
        });
        for (number, is_implied) in ended {
            let request = &mut self.found.all[number];
            request.completed = Some(at);
            request.is_implied = is_implied;
            request.ended_ps = Some(record.fields.time_ps);
            if !is_implied {
                self.found.of_completion.insert(at, number);
            }
        }
        self.note_depth(id, is_send, record.fields.time_ps);
        true
    }
}

/// Whether it is memory for the rest of a message, which does not wait behind earlier receives.
fn is_rest(code: u8) -> bool {
    code == Operation::RecvRest as u8
}

/// The waits of all threads. A thread that waits for several objects, or wakes without an event, waits on.
fn waits(trace: &Trace) -> Vec<Wait> {
    let mut open: BTreeMap<u16, (u32, u64)> = BTreeMap::new();
    let mut waits = Vec::new();
    for record in &trace.records {
        let fields = &record.fields;
        match record.what {
            What::Wait => drop(open.entry(fields.thread).or_insert((fields.object, fields.time_ps))),
            // Its time is its beginning, which may be before the wait inside of it.
            What::Interface | What::Call => {}
            _ => waits.extend(open.remove(&fields.thread).map(|(object, from_ps)| Wait {
                thread: fields.thread,
                object,
                from_ps,
                to_ps: fields.time_ps,
            })),
        }
    }
    let last = trace.last_ps();
    let rest =
        open.into_iter().map(|(thread, (object, from_ps))| Wait { thread, object, from_ps, to_ps: last });
    waits.extend(rest);
    waits.sort_by_key(|wait| wait.from_ps);
    waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Fields, kind};
    use crate::read::tests::File;

    #[test]
    fn unsignaled_requests_end_with_the_next_completion() {
        let mut file = File::new();
        file.qp(3, false);
        file.entry(crate::format::entry::OBJECT, &[2 | 1 << 32, 1], "");
        file.send(10, 3, 1, 0);
        file.send(20, 3, 2, 0);
        file.send(30, 3, 3, flag::SIGNALED);
        file.send(40, 3, 4, 0);
        file.completion(50, 0x30, 3, 0);
        let trace = file.read();
        let requests = Requests::of(&trace);
        let ends: Vec<_> =
            requests.all.iter().map(|request| (request.ended_ps, request.is_implied)).collect();
        assert_eq!(ends, [(Some(50), true), (Some(50), true), (Some(50), false), (None, false)]);
        let depths: Vec<_> = requests.send_depths[&3].iter().map(|depth| depth.depth).collect();
        assert_eq!(depths, [1, 2, 3, 4, 1]);
        assert_eq!(requests.of_completion[&4], 2);
    }

    #[test]
    fn equal_numbers_are_matched_in_order_and_refused_posts_are_no_requests() {
        let mut file = File::new();
        file.qp(3, true);
        file.entry(crate::format::entry::OBJECT, &[2 | 1 << 32, 1], "");
        file.send(10, 3, 7, 0);
        file.send(20, 3, 7, 0);
        file.record(Fields {
            time_ps: 25,
            kind: kind::SEND,
            object: 3,
            id: 7,
            result: 5,
            ..Fields::default()
        });
        file.completion(30, 0x30, 7, 0);
        file.completion(40, 0x30, 7, 4);
        file.completion(50, 0x30, 7, 0);
        let requests = Requests::of(&file.read());
        let ends: Vec<_> = requests.all.iter().map(|request| request.ended_ps).collect();
        assert_eq!(ends, [Some(30), Some(40)]);
    }

    #[test]
    fn rest_of_a_message_is_not_an_earlier_receive() {
        let mut file = File::new();
        file.qp(3, false);
        file.entry(crate::format::entry::OBJECT, &[2 | 1 << 32, 1], "");
        let recv = |time_ps, operation| Fields {
            time_ps,
            kind: kind::RECV,
            code: operation as u8,
            object: 3,
            id: 7,
            ..Fields::default()
        };
        file.record(recv(10, Operation::Recv));
        file.record(recv(20, Operation::Recv));
        file.record(recv(30, Operation::RecvRest));
        for (time_ps, operation) in [(40, Operation::RecvRest), (50, Operation::RecvBegin)] {
            let code = operation as u8;
            let fields = Fields {
                time_ps,
                kind: kind::COMPLETION,
                code,
                object: 2,
                other: 0x30,
                id: 7,
                ..Fields::default()
            };
            file.record(fields);
        }
        let ends: Vec<_> = Requests::of(&file.read()).all.iter().map(|request| request.ended_ps).collect();
        assert_eq!(ends, [Some(50), None, Some(40)]);
    }

    #[test]
    fn wait_lasts_until_the_next_record_of_its_thread() {
        let mut file = File::new();
        let wait = |time_ps, thread, object| Fields {
            time_ps,
            kind: kind::WAIT,
            thread,
            object,
            ..Fields::default()
        };
        file.record(wait(10, 1, 5));
        file.record(wait(11, 1, 6));
        file.send(12, 3, 1, 0);
        file.record(wait(13, 2, 7));
        file.record(Fields { time_ps: 20, kind: kind::COMPLETION, thread: 1, ..Fields::default() });
        let waits = Requests::of(&file.read()).waits;
        let (one, two) = (
            Wait { thread: 1, object: 5, from_ps: 10, to_ps: 20 },
            Wait { thread: 2, object: 7, from_ps: 13, to_ps: 20 },
        );
        assert_eq!(waits, [one, two]);
    }
}
