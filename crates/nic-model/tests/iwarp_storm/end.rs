//! One end: a rank that does the handshake, posts its program, and drives the state machines of `iwarp` over
//! a modelled stream.

use std::collections::VecDeque;
use std::time::Duration;

use host::{EventCount, Host, Span, Time};
use iwarp::mpa::{
    AcceptParams, HandshakeError, HandshakeOutcome, Initiator, InitiatorConfig, Negotiated, Responder,
    Revision, Role, Rtr,
};
use iwarp::open_requests::{OpenRequest, PeerEffect, count_arrived, find_blamed};
use iwarp::rdmap::ReadRequest;
use iwarp::terminate::TerminateCode;
use iwarp::testing::{Endpoint, EndpointEvent, Rights};
use iwarp::tx::{OpKind, Origin, PostError};
use iwarp::{Connection, Limits};
use nic_model::stream::{Reset, Stream};

use super::plan::{BYE, COUNTERS, Fault, PASSING, Plan, READABLE, WRITABLE, readable};

/// Longer than any seed takes while bytes keep arriving.
const PATIENCE: Span = Span::from_secs(3);
/// The cost of polling the stream.
const POLL_COST: Span = Span::from_ns(50);

/// How an end finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOutcome {
    /// All steps have completed at both ends.
    Clean,
    /// The connection was refused.
    Refused,
    /// The other end violated a rule.
    Failed(TerminateCode),
    /// The other end reports that this one violated a rule.
    Terminated(TerminateCode),
    /// The other end closed; `cut`: in the middle of an FPDU.
    Closed {
        cut: bool,
    },
    Reset,
    /// This end closed early, as planned.
    Quit,
    /// Nothing arrived for too long.
    Timeout,
}

/// The observations of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndReport {
    pub(crate) ending: EndOutcome,
    pub(crate) time: Time,
    /// Steps in the order of completion, and steps that were flushed.
    pub(crate) completed: Vec<usize>,
    pub(crate) flushed: Vec<usize>,
    /// Messages received.
    pub(crate) messages: Vec<EndpointEvent>,
    /// The bytes that the other end wrote.
    pub(crate) written: Vec<u8>,
    /// Steps with a wrong result, and other errors.
    pub(crate) wrong: Vec<String>,
    /// Completed steps have certainly arrived: the ends have agreed on a way to query arrival.
    pub(crate) promised: bool,
    /// The step that the other end's Terminate is about, as far as this end can determine.
    pub(crate) blamed: Option<usize>,
    /// The other end's receipt covered exactly the steps before that one, and needs no answer.
    pub(crate) covered: bool,
}

/// The meaning of an operation's identifier.
#[derive(Clone, Copy, Debug)]
enum OpMeaning {
    PlannedRequest(usize),
    /// A query whether this many steps have arrived.
    Question(usize),
}

/// A connected end.
pub(crate) struct StormEnd<'a> {
    plan: &'a Plan,
    seed: u64,
    me: usize,
    stream: Stream,
    /// A second connection, if the first fails and the initiator retries.
    again: Option<Stream>,
    host: Host,
    negotiated: Option<Negotiated>,
    /// Bytes that arrived together with the handshake.
    ahead: Vec<u8>,
    report: EndReport,
    begun: Time,
    posted: usize,
    /// The posted operations, by identifier minus one.
    names: Vec<OpMeaning>,
    /// Whether this end queries arrival, and how many steps it has queried.
    may_query: bool,
    asked: usize,
    /// The wire form of the posted steps, and the numbers of the next messages.
    on_wire: Vec<OpenRequest>,
    next_send: u32,
    next_request: u32,
    next_at: Time,
    /// The state machine has no room for the next step.
    full: bool,
    out: Vec<u8>,
    /// Bytes produced by the state machine, and bytes accepted by the stream.
    made: u64,
    taken: u64,
    /// Writes and sends that complete when this many bytes were accepted.
    sending: VecDeque<(u64, usize)>,
    logged: usize,
    shut: bool,
}

/// Continue, or the end's final state.
type StepResult = Result<(), EndOutcome>;

impl From<Reset> for EndOutcome {
    fn from(_: Reset) -> Self {
        Self::Reset
    }
}

impl<'a> StormEnd<'a> {
    pub(crate) fn new(plan: &'a Plan, seed: u64, me: usize, streams: [Stream; 2]) -> Self {
        let [stream, again] = streams;
        let host = stream.node().host();
        let report = EndReport {
            ending: EndOutcome::Refused,
            time: Time::ZERO,
            completed: Vec::new(),
            flushed: Vec::new(),
            messages: Vec::new(),
            written: Vec::new(),
            wrong: Vec::new(),
            promised: false,
            blamed: None,
            covered: false,
        };
        let begun = host.now();
        Self {
            plan,
            seed,
            me,
            stream,
            again: Some(again),
            host,
            negotiated: None,
            ahead: Vec::new(),
            report,
            begun,
            posted: 0,
            names: Vec::new(),
            may_query: false,
            asked: 0,
            on_wire: Vec::new(),
            next_send: 1,
            next_request: 1,
            next_at: begun,
            full: false,
            out: Vec::new(),
            made: 0,
            taken: 0,
            sending: VecDeque::new(),
            logged: 0,
            shut: false,
        }
    }

    /// Runs the end from handshake to close.
    pub(crate) fn run(mut self) -> EndReport {
        let shaken = if self.me == 0 { self.initiate_up_to_twice() } else { self.respond() };
        let mut ending = match shaken {
            Ok(()) => self.run_connection(),
            Err(ending) => ending,
        };
        if self.me == 1
            && matches!(ending, EndOutcome::Refused | EndOutcome::Reset | EndOutcome::Closed { .. })
            && let (Fault::Old | Fault::Shaken(..), Some(again)) = (self.plan.fault, self.again.take())
        {
            self.stream.shutdown_write();
            self = Self::new(self.plan, self.seed, self.me, [again.clone(), again]);
            self.again = None;
            ending = match self.respond() {
                Ok(()) => self.run_connection(),
                Err(ending) => ending,
            };
        }
        if matches!(ending, EndOutcome::Timeout) {
            self.stream.reset();
        } else {
            self.stream.shutdown_write();
        }
        self.report.ending = ending;
        self.report.time = self.host.now();
        let steps = 0..self.plan.programs[self.me].steps.len();
        self.report.flushed = steps.filter(|step| !self.report.completed.contains(step)).collect();
        self.report
    }

    fn now(&self) -> Duration {
        self.host.now().since(Time::ZERO).to_std()
    }

    /// Sends some of these bytes, and receives some; `None` if nothing has arrived.
    fn exchange(&self, out: &[u8]) -> Result<(usize, Option<Vec<u8>>), EndOutcome> {
        self.host.charge(POLL_COST);
        let sent = if out.is_empty() { 0 } else { self.stream.send(out)? };
        let mut bytes = vec![0; self.plan.read];
        let received = self.stream.receive(&mut bytes)?;
        Ok((sent, received.map(|n| bytes[..n].to_vec())))
    }

    fn patience(&self) -> Option<Time> {
        Some(self.begun + PATIENCE)
    }

    /// Whether the handshake may fail for a reason that the ends cannot know.
    fn may_fail(&self) -> bool {
        matches!(self.plan.fault, Fault::Hit(..) | Fault::Shaken(..))
    }

    /// Retries with revision 1 if the state machine reports that this may help, as a device does.
    fn initiate_up_to_twice(&mut self) -> StepResult {
        let (turn, again) = self.initiate(self.plan.initiator.clone());
        let second = self.again.take().expect("nobody took it");
        if turn.is_ok() || !again {
            second.reset();
            return turn;
        }
        self.stream.shutdown_write();
        self.stream = second;
        self.ahead.clear();
        let config = InitiatorConfig {
            revision: Revision::V1,
            peer_to_peer: iwarp::mpa::RtrSet::empty(),
            ..self.plan.initiator.clone()
        };
        self.initiate(config).0
    }

    /// The result, and whether another attempt with revision 1 may help.
    fn initiate(&mut self, config: InitiatorConfig) -> (StepResult, bool) {
        let mut machine = Initiator::new(config, self.now()).expect("the plan can be asked for");
        let found = self.host.clone().wait("initiate", &EventCount::new(), self.patience(), || {
            loop {
                let (sent, received) = match self.exchange(machine.transmit()) {
                    Ok(both) => both,
                    Err(ending) => {
                        machine.handle_eof();
                        return Some(Err(ending));
                    }
                };
                machine.transmitted(sent);
                let bytes = received?;
                let handled =
                    if bytes.is_empty() { Err(machine.handle_eof()) } else { machine.handle_bytes(&bytes) };
                match handled {
                    Ok((_, None)) => {}
                    Ok((taken, Some(outcome))) => {
                        let again = machine.may_retry_as_v1();
                        return Some(self.on_reply(outcome, &bytes[taken..], again));
                    }
                    Err(error) => {
                        if !self.may_fail() {
                            self.report.wrong.push(format!("no connection: {error}"));
                        }
                        return Some(Err(EndOutcome::Refused));
                    }
                }
            }
        });
        (found.unwrap_or(Err(EndOutcome::Timeout)), machine.may_retry_as_v1())
    }

    fn on_reply(&mut self, outcome: HandshakeOutcome, rest: &[u8], may_retry_as_v1: bool) -> StepResult {
        match outcome {
            HandshakeOutcome::Established(negotiated) => {
                self.negotiated = Some(negotiated);
                self.ahead = rest.to_vec();
                Ok(())
            }
            HandshakeOutcome::Rejected { private_data } => {
                let expected = match self.plan.fault {
                    Fault::Reject => private_data == b"no",
                    Fault::Old => may_retry_as_v1,
                    fault => fault == Fault::NoFirstMessage,
                };
                if !expected && !self.may_fail() {
                    self.report.wrong.push("rejected".into());
                }
                Err(EndOutcome::Refused)
            }
        }
    }

    fn respond(&mut self) -> StepResult {
        let mut machine = Responder::new(self.plan.responder.clone(), self.now());
        let mut decided = None;
        let found = self.host.clone().wait("respond", &EventCount::new(), self.patience(), || {
            while decided.is_none() {
                let bytes = match self.exchange(&[]) {
                    Ok((_, received)) => received?,
                    Err(ending) => return Some(Err(ending)),
                };
                let handled =
                    if bytes.is_empty() { Err(machine.handle_eof()) } else { machine.handle_bytes(&bytes) };
                decided = match handled {
                    Ok((_, None)) => None,
                    Ok((_, Some(_))) if self.plan.fault == Fault::Reject => {
                        machine.reject(b"no").expect("there is a request");
                        Some(Err(EndOutcome::Refused))
                    }
                    Ok((_, Some(_))) => Some(self.accept(machine.accept(&self.plan.accept))),
                    Err(_) => Some(Err(EndOutcome::Refused)),
                };
            }
            self.host.charge(POLL_COST);
            match self.stream.send(machine.transmit()) {
                Ok(sent) => {
                    machine.transmitted(sent);
                    machine.transmit().is_empty().then(|| decided.take().unwrap_or(Ok(())))
                }
                Err(reset) => Some(Err(reset.into())),
            }
        });
        found.unwrap_or(Err(EndOutcome::Timeout))
    }

    fn accept(&mut self, accepted: Result<Negotiated, HandshakeError>) -> StepResult {
        let AcceptParams { ird, .. } = self.plan.accept;
        match accepted {
            Ok(negotiated) => {
                if negotiated.ird > ird && !self.may_fail() {
                    self.report.wrong.push(format!("serves {} reads, not {ird}", negotiated.ird));
                }
                self.negotiated = Some(negotiated);
                Ok(())
            }
            Err(error) => {
                let expected =
                    error == HandshakeError::NoCommonRtr && self.plan.fault == Fault::NoFirstMessage;
                if !expected && !self.may_fail() {
                    self.report.wrong.push(format!("not accepted: {error}"));
                }
                Err(EndOutcome::Refused)
            }
        }
    }

    /// Sets up the end's memory, with everything that the other end's program needs.
    fn set_up_memory(&mut self, negotiated: &Negotiated) -> (Endpoint, std::ops::Range<usize>) {
        let limits =
            Limits { queue: self.plan.queue, mulpdu: self.plan.mulpdu[self.me], ..Limits::default() };
        let mut endpoint = Endpoint::new(Connection::new(negotiated, &limits, self.now()));
        let theirs = &self.plan.programs[1 - self.me];
        let written = endpoint.register(WRITABLE.0, WRITABLE.1, &vec![0; theirs.writable], Rights::WRITE);
        endpoint.register(READABLE.0, READABLE.1, &readable(self.seed, self.me), Rights::READ);
        endpoint.register(COUNTERS.0, COUNTERS.1, &[0; 8], Rights::ATOMIC);
        for number in 0..theirs.passing {
            endpoint.register(PASSING + number, 0, &[0; 8], Rights::INVALIDATE);
        }
        theirs.receives.iter().for_each(|len| endpoint.post_receive(*len));
        (endpoint, written)
    }

    fn run_connection(&mut self) -> EndOutcome {
        let negotiated = self.negotiated.take().expect("hands were shaken");
        self.choose_arrival_query(&negotiated);
        let (mut endpoint, written) = self.set_up_memory(&negotiated);
        if let Fault::Flip(end, ahead) = self.plan.fault
            && end == self.me
        {
            self.stream.flip_bit(ahead, self.seed as u8);
        }
        let ahead = std::mem::take(&mut self.ahead);
        endpoint.receive_bytes(&ahead);
        let ending = loop {
            // A step without room in the state machine waits for an event, not for its time.
            let due = Some(self.next_at).filter(|_| !self.is_posted() && !self.full);
            let next = [due, self.patience()].into_iter().flatten().min();
            let host = self.host.clone();
            let turn = host.wait("converse", &EventCount::new(), next, || {
                let before = (self.next_at, self.full);
                match self.turn(&mut endpoint) {
                    Err(ending) => Some(Some(ending)),
                    Ok(()) => (before != (self.next_at, self.full)).then_some(None),
                }
            });
            match turn {
                Some(Some(ending)) => break ending,
                None if self.host.now() >= self.begun + PATIENCE => break EndOutcome::Timeout,
                _ => {}
            }
        };
        if ending == EndOutcome::Quit && matches!(self.plan.fault, Fault::Leave(..)) {
            endpoint.connection.finish();
            // The other end's report shows whether this arrived.
            let _ = self.send_rest(&mut endpoint, ending);
        }
        self.report.written = endpoint.memory().read(written).to_vec();
        if let Some(at) = endpoint.memory().damage() {
            self.report.wrong.push(format!("byte {at} changed, to which nobody gave a right"));
        }
        ending
    }

    /// Chooses how this end detects arrival.
    fn choose_arrival_query(&mut self, negotiated: &Negotiated) {
        self.may_query = negotiated.answers_empty_reads();
        // An end may only do without queries if the peer, as both have agreed, does not answer them.
        self.report.promised =
            negotiated.ord > 0 && (negotiated.revision == Revision::V1 || negotiated.rtr == Some(Rtr::Send));
        let begins = negotiated.rtr.filter(|_| negotiated.role == Role::Initiator);
        self.next_send = if begins == Some(Rtr::Send) { 2 } else { 1 };
        self.next_request = if begins == Some(Rtr::Read) { 2 } else { 1 };
    }

    fn is_posted(&self) -> bool {
        self.posted == self.plan.programs[self.me].steps.len()
    }

    /// Does everything that is possible now.
    fn turn(&mut self, endpoint: &mut Endpoint) -> StepResult {
        self.post(endpoint)?;
        loop {
            let (sent, received) = self.exchange(&self.out)?;
            self.out.drain(..sent);
            self.taken += sent as u64;
            while let Some((_, step)) = self.sending.pop_front_if(|(upto, _)| *upto <= self.taken) {
                self.report.completed.push(step);
            }
            let before = (self.made, self.logged);
            match &received {
                Some(bytes) if bytes.is_empty() => return self.on_eof(endpoint),
                Some(bytes) => endpoint.receive_bytes(bytes),
                None => {}
            }
            let end = self.process_events(endpoint);
            if self.out.is_empty() {
                self.produce_fpdu(endpoint);
            }
            if let Some(ending) = end {
                return self.send_rest(endpoint, ending);
            }
            self.post(endpoint)?;
            if sent == 0 && received.is_none() && before == (self.made, self.logged) {
                break;
            }
        }
        if !self.shut && self.is_done(endpoint) {
            self.shut = true;
            self.stream.shutdown_write();
        }
        Ok(())
    }

    /// All steps of this end have completed, and the other end's final message has arrived.
    fn is_done(&self, endpoint: &Endpoint) -> bool {
        let all = self.report.completed.len() == self.plan.programs[self.me].steps.len();
        let bye =
            matches!(self.report.messages.last(), Some(EndpointEvent::Received { data, .. }) if data == BYE);
        all && bye && self.out.is_empty() && endpoint.connection.is_idle()
    }

    /// Posts the steps that are due.
    fn post(&mut self, endpoint: &mut Endpoint) -> StepResult {
        let steps = &self.plan.programs[self.me].steps;
        self.full = false;
        while let Some(step) = steps.get(self.posted)
            && self.host.now() >= self.next_at
        {
            let here = (self.me, self.posted);
            if [Fault::Quit(here.0, here.1), Fault::Leave(here.0, here.1)].contains(&self.plan.fault) {
                return Err(EndOutcome::Quit);
            }
            // The final message waits for all answers, so it is sent when everything before it has arrived;
            // its own arrival is not queried.
            let due = if self.posted + 1 == steps.len() { 1 } else { self.plan.ask_every };
            if self.may_query && self.posted >= self.asked + due && !self.query_arrival(endpoint) {
                break;
            }
            match endpoint.post(step.kind, &step.data, step.fence) {
                Ok(id) => self.name(id, OpMeaning::PlannedRequest(self.posted)),
                Err(PostError::Full | PostError::Closed) => {
                    self.full = true;
                    break;
                }
                Err(error) => {
                    if !self.may_fail() {
                        self.report.wrong.push(format!("step {} was not taken: {error}", self.posted));
                    }
                    return Err(EndOutcome::Quit);
                }
            }
            let look = self.open_request_of(self.posted);
            self.on_wire.push(look);
            self.posted += 1;
            self.next_at = self.host.now() + steps.get(self.posted).map_or(Span::ZERO, |step| step.pause);
        }
        Ok(())
    }

    fn name(&mut self, id: u64, named: OpMeaning) {
        self.names.push(named);
        assert_eq!(id, self.names.len() as u64, "names are numbers");
    }

    /// Queries whether everything posted has arrived; returns whether there was room for the query.
    fn query_arrival(&mut self, endpoint: &mut Endpoint) -> bool {
        let nothing = ReadRequest { sink_stag: 1, sink_to: 0, len: 0, source_stag: 1, source_to: 0 };
        let Ok(id) = endpoint.post(OpKind::Read(nothing), &[], false) else {
            self.full = true;
            return false;
        };
        self.name(id, OpMeaning::Question(self.posted));
        self.next_request = self.next_request.wrapping_add(1);
        self.asked = self.posted;
        true
    }

    /// The form of a step on the wire when its turn comes.
    fn open_request_of(&mut self, number: usize) -> OpenRequest {
        let step = &self.plan.programs[self.me].steps[number];
        let (effect, len) = match step.kind {
            OpKind::Write { stag, to, .. } => (PeerEffect::Write { stag, to }, step.data.len()),
            OpKind::Send { .. } | OpKind::Immediate { .. } => (PeerEffect::Send, step.data.len()),
            OpKind::Read(_) | OpKind::Atomic { .. } => (PeerEffect::Fetch, step.brings.len()),
        };
        let (sends, requests) =
            (u32::from(effect == PeerEffect::Send), u32::from(effect == PeerEffect::Fetch));
        let request = OpenRequest {
            number: number as u64,
            effect,
            len: len as u32,
            sends: (self.next_send, sends),
            request: (requests > 0).then_some(self.next_request),
        };
        self.next_send = self.next_send.wrapping_add(sends);
        self.next_request = self.next_request.wrapping_add(requests);
        request
    }

    /// The steps before this one are known to have arrived.
    fn mark_arrived(&mut self, upto: usize) {
        let steps = &self.plan.programs[self.me].steps[..upto];
        for (number, step) in steps.iter().enumerate() {
            let fetches = matches!(step.kind, OpKind::Read(_) | OpKind::Atomic { .. });
            if self.may_query && !fetches && !self.report.completed.contains(&number) {
                self.report.completed.push(number);
            }
        }
    }

    /// Evaluates the other end's Terminate about this end's steps, and its receipt.
    fn evaluate_terminate(&mut self, endpoint: &Endpoint) {
        let Some(terminate) = endpoint.terminate() else { return };
        let open = self.complete_receipted(endpoint);
        self.report.blamed = find_blamed(terminate, &open).map(|culprit| culprit.number as usize);
    }

    /// Completes the steps that the other end's receipt covers; returns the open ones.
    fn complete_receipted(&mut self, endpoint: &Endpoint) -> Vec<OpenRequest> {
        let completed = &self.report.completed;
        let mut open: Vec<OpenRequest> =
            self.on_wire.iter().filter(|o| !completed.contains(&(o.number as usize))).copied().collect();
        if self.may_query {
            let over = self.on_wire.iter().filter(|o| completed.contains(&(o.number as usize)));
            let over = over.fold(0_u32, |sum, o| sum.wrapping_add(o.counted_messages()));
            let count = count_arrived(endpoint.connection.receipt(), over, &open);
            if let Some(last) = open[..count].last() {
                self.mark_arrived(last.number as usize + 1);
            }
            let steps = &self.plan.programs[self.me].steps;
            let breach = steps.iter().position(|step| step.breaks.is_some());
            let fetch = open.iter().position(|o| o.effect == PeerEffect::Fetch);
            self.report.covered = breach.is_none_or(|breach| {
                let before = open.iter().take_while(|o| (o.number as usize) < breach).count();
                count == before.min(fetch.unwrap_or(before))
            });
            open.drain(..count);
        }
        open
    }

    /// Lets the state machine produce the next FPDU.
    fn produce_fpdu(&mut self, endpoint: &mut Endpoint) {
        while self.out.is_empty()
            && let Some((origin, last)) = endpoint.transmit_next(&mut self.out)
        {
            self.made += self.out.len() as u64;
            if let (Origin::Op(id), true) = (origin, last) {
                let OpMeaning::PlannedRequest(step) = self.names[id as usize - 1] else { continue };
                let kind = self.plan.programs[self.me].steps[step].kind;
                let asked_about = self.may_query && step + 1 < self.plan.programs[self.me].steps.len();
                if !asked_about && !matches!(kind, OpKind::Read(_) | OpKind::Atomic { .. }) {
                    self.sending.push_back((self.made, step));
                }
            }
        }
    }

    /// Processes the new log entries of the state machine; returns the final state, if an entry ends the
    /// connection.
    fn process_events(&mut self, endpoint: &Endpoint) -> Option<EndOutcome> {
        let mut end = None;
        for log in &endpoint.log()[self.logged..] {
            if let EndpointEvent::ReadDone(id) | EndpointEvent::AtomicDone(id, _) = log {
                match self.names[*id as usize - 1] {
                    OpMeaning::Question(upto) => {
                        self.mark_arrived(upto);
                        continue;
                    }
                    OpMeaning::PlannedRequest(step) => self.mark_arrived(step),
                }
            }
            let brought = match log {
                EndpointEvent::Ready => continue,
                EndpointEvent::Received { .. } | EndpointEvent::Immediate { .. } => {
                    self.report.messages.push(log.clone());
                    continue;
                }
                EndpointEvent::Failed(code) => {
                    end = end.or(Some(EndOutcome::Failed(*code)));
                    continue;
                }
                EndpointEvent::Terminated(code) => {
                    self.evaluate_terminate(endpoint);
                    end = end.or(Some(EndOutcome::Terminated(*code)));
                    continue;
                }
                EndpointEvent::ReadDone(id) => {
                    let OpMeaning::PlannedRequest(step) = self.names[*id as usize - 1] else { continue };
                    let wanted = &self.plan.programs[self.me].steps[step].brings;
                    (*id, endpoint.read_result(*id, wanted.len()).map(<[u8]>::to_vec))
                }
                EndpointEvent::AtomicDone(id, original) => (*id, Some(original.to_ne_bytes().to_vec())),
            };
            let OpMeaning::PlannedRequest(step) = self.names[brought.0 as usize - 1] else { continue };
            if brought.1.as_ref() != Some(&self.plan.programs[self.me].steps[step].brings) {
                self.report.wrong.push(format!("step {step} brought something else"));
            }
            self.report.completed.push(step);
        }
        self.logged = endpoint.log().len();
        end
    }

    /// Sends the remaining bytes of the state machine, which include a Terminate if this end found the error.
    fn send_rest(&mut self, endpoint: &mut Endpoint, ending: EndOutcome) -> StepResult {
        if matches!(ending, EndOutcome::Terminated(_)) {
            return Err(ending);
        }
        let host = self.host.clone();
        let said = host.wait("last words", &EventCount::new(), self.patience(), || {
            self.host.charge(POLL_COST);
            self.produce_fpdu(endpoint);
            match self.stream.send(&self.out) {
                Ok(sent) => drop(self.out.drain(..sent)),
                Err(reset) => return Some(Err(EndOutcome::from(reset))),
            }
            // Keeps reading, so that the other end can finish sending and then receives the Terminate.
            let mut void = [0; 4096];
            loop {
                match self.stream.receive(&mut void) {
                    Ok(None | Some(0)) => break,
                    Ok(Some(_)) => {}
                    Err(reset) => return Some(Err(reset.into())),
                }
            }
            (self.out.is_empty() && endpoint.connection.is_closed()).then_some(Err(ending))
        });
        said.unwrap_or(Err(EndOutcome::Timeout))
    }

    fn on_eof(&mut self, endpoint: &mut Endpoint) -> StepResult {
        let done = self.is_done(endpoint);
        if !done {
            self.complete_receipted(endpoint);
        }
        let cut = endpoint.receive_eof().is_err();
        Err(if done && !cut { EndOutcome::Clean } else { EndOutcome::Closed { cut } })
    }
}
