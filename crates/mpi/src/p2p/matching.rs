//! [`Matching`]: matches messages with receives by MPI's rules, and nothing else (MPI 5.0, section 3.5).
//!
//! Each context has a queue of posted receives and a queue of unexpected messages. A message is matched with the first receive that
//! accepts it, in the order of posting; a receive is matched with the first message that it accepts, in the order of arrival.
//! Messages of one sender arrive in the order of sending, so none overtakes another.

use std::collections::VecDeque;

use crate::p2p::wire::MatchKey;

/// The messages that a receive or a probe accepts. `None` accepts any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatchCriteria {
    /// The communicator's context.
    pub(crate) context: u64,
    /// The sender.
    pub(crate) source: Option<u32>,
    /// The tag.
    pub(crate) tag: Option<i32>,
}

/// The messages that a receive from a known source accepts. A tag of `None` accepts any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagCriteria {
    pub(crate) context: u64,
    pub(crate) tag: Option<i32>,
}

impl TagCriteria {
    /// Whether it accepts a message with this key.
    #[inline]
    pub(crate) fn accepts(&self, match_key: &MatchKey) -> bool {
        match_key.context == self.context && self.tag.is_none_or(|tag| tag == match_key.tag)
    }
}

/// The sender of a message, and its matching fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// The sender.
    pub(crate) source: u32,
    /// Its context and tag.
    pub(crate) match_key: MatchKey,
}

impl MatchCriteria {
    /// Whether it accepts this message of its context.
    #[inline]
    pub(crate) fn accepts(&self, envelope: &Envelope) -> bool {
        self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.match_key.tag)
    }
}

#[derive(Debug)]
struct Queue<R, M> {
    context: u64,
    receives: VecDeque<(MatchCriteria, R)>,
    messages: VecDeque<(Envelope, M)>,
}

/// The posted receives `R` and the unexpected messages `M` of a process.
#[derive(Debug)]
pub(crate) struct Matching<R, M> {
    /// Sorted by context.
    queues: Vec<Queue<R, M>>,
    /// The index of the queue used last: most often the next one, too.
    last: usize,
    /// Entries compared since [`Matching::take_comparisons`] was last called.
    compared: u64,
    /// Counts of unexpected messages: in total, now, and the most at a time.
    kept: u64,
    waiting: usize,
    most: usize,
}

impl<R, M> Default for Matching<R, M> {
    fn default() -> Self {
        Self { queues: Vec::new(), last: 0, compared: 0, kept: 0, waiting: 0, most: 0 }
    }
}

impl<R: PartialEq, M> Matching<R, M> {
    /// The queue of a context, if there is one.
    #[inline]
    fn find_queue(&mut self, context: u64) -> Option<&mut Queue<R, M>> {
        if self.queues.get(self.last).is_none_or(|queue| queue.context != context) {
            self.last = self.queues.binary_search_by_key(&context, |queue| queue.context).ok()?;
        }
        self.queues.get_mut(self.last)
    }

    #[inline]
    fn queue_of(&mut self, context: u64) -> &mut Queue<R, M> {
        let last = self.last;
        if self.queues.get(last).is_some_and(|queue| queue.context == context) {
            return &mut self.queues[last];
        }
        self.switch_queue(context)
    }

    #[cold]
    fn switch_queue(&mut self, context: u64) -> &mut Queue<R, M> {
        if self.find_queue(context).is_none() {
            self.insert_queue(context);
        }
        &mut self.queues[self.last]
    }

    fn insert_queue(&mut self, context: u64) {
        self.last = self.queues.partition_point(|queue| queue.context < context);
        let queue = Queue { context, receives: VecDeque::new(), messages: VecDeque::new() };
        self.queues.insert(self.last, queue);
    }

    /// Removes and returns the posted receive that accepts an arrived message. If there is none, the caller keeps the message by
    /// [`Matching::add_unexpected`].
    #[inline]
    pub(crate) fn match_arrival(&mut self, envelope: &Envelope) -> Option<R> {
        let receives = &mut self.find_queue(envelope.match_key.context)?.receives;
        if receives.front().is_some_and(|(wanted, _)| wanted.accepts(envelope)) {
            let first = receives.pop_front();
            self.compared += 1;
            return first.map(|(_, receive)| receive);
        }
        let at = receives.iter().position(|(wanted, _)| wanted.accepts(envelope));
        let compared = at.map_or(receives.len(), |at| at + 1) as u64;
        let found = at.and_then(|at| receives.remove(at)).map(|(_, receive)| receive);
        self.compared += compared;
        found
    }

    /// Offers arrived messages to the receives of the context used last, in the order of posting, until `take` returns false: that
    /// receive keeps waiting.
    #[inline]
    pub(crate) fn offer_in_order(&mut self, mut take: impl FnMut(&MatchCriteria, &R) -> bool) {
        let Some(queue) = self.queues.get_mut(self.last) else { return };
        let mut taken = 0;
        for (wanted, receive) in &queue.receives {
            if !take(wanted, receive) {
                break;
            }
            taken += 1;
        }
        queue.receives.drain(..taken);
        self.compared += taken as u64;
    }

    /// Adds an unexpected message.
    pub(crate) fn add_unexpected(&mut self, envelope: Envelope, message: M) {
        self.queue_of(envelope.match_key.context).messages.push_back((envelope, message));
        self.kept += 1;
        self.waiting += 1;
        self.most = self.most.max(self.waiting);
    }

    /// Removes and returns the message that a new receive gets. If there is none, the caller adds the receive by
    /// [`Matching::post`].
    #[inline]
    pub(crate) fn take_unexpected(&mut self, wanted: &MatchCriteria) -> Option<(Envelope, M)> {
        let at = self.find(wanted)?;
        self.waiting -= 1;
        self.queues[self.last].messages.remove(at)
    }

    /// The message that a new receive would get.
    pub(crate) fn probe(&mut self, wanted: &MatchCriteria) -> Option<&(Envelope, M)> {
        let at = self.find(wanted)?;
        self.queues[self.last].messages.get(at)
    }

    /// The index of a message in the context's queue, which becomes the queue used last.
    #[inline]
    fn find(&mut self, wanted: &MatchCriteria) -> Option<usize> {
        let messages = &self.find_queue(wanted.context)?.messages;
        if messages.is_empty() {
            return None;
        }
        let at = messages.iter().position(|(envelope, _)| wanted.accepts(envelope));
        self.compared += at.map_or(messages.len(), |at| at + 1) as u64;
        at
    }

    /// Whether unexpected messages of a context wait.
    #[inline]
    pub(crate) fn has_unexpected(&mut self, context: u64) -> bool {
        self.find_queue(context).is_some_and(|queue| !queue.messages.is_empty())
    }

    /// Whether a context has neither posted receives nor unexpected messages.
    #[inline]
    pub(crate) fn is_idle(&mut self, context: u64) -> bool {
        self.find_queue(context).is_none_or(|queue| queue.receives.is_empty() && queue.messages.is_empty())
    }

    /// Adds a posted receive.
    #[inline]
    pub(crate) fn post(&mut self, wanted: MatchCriteria, receive: R) {
        self.queue_of(wanted.context).receives.push_back((wanted, receive));
    }

    /// The queue of a context's posted receives; `None` if unexpected messages of the context wait.
    #[inline]
    pub(crate) fn posted_receives(&mut self, context: u64) -> Option<&mut VecDeque<(MatchCriteria, R)>> {
        let queue = self.queue_of(context);
        if queue.messages.is_empty() { Some(&mut queue.receives) } else { None }
    }

    /// The messages that a posted receive accepts.
    pub(crate) fn criteria_of(&self, receive: &R) -> Option<&MatchCriteria> {
        let mut all = self.queues.iter().flat_map(|queue| &queue.receives);
        all.find(|(_, waiting)| waiting == receive).map(|(wanted, _)| wanted)
    }

    /// Removes a receive; false if it is not posted, or no longer.
    pub(crate) fn cancel(&mut self, receive: &R) -> bool {
        self.queues.iter_mut().any(|queue| {
            let at = queue.receives.iter().position(|(_, waiting)| waiting == receive);
            at.is_some_and(|at| queue.receives.remove(at).is_some())
        })
    }

    /// Removes the sender's first message for which `is` returns true; `None` if none waits.
    pub(crate) fn remove_unexpected(&mut self, source: u32, is: impl Fn(&M) -> bool) -> Option<M> {
        let is = |(envelope, message): &(Envelope, M)| envelope.source == source && is(message);
        let (_, message) = self.queues.iter_mut().find_map(|queue| {
            let at = queue.messages.iter().position(is)?;
            queue.messages.remove(at)
        })?;
        self.waiting -= 1;
        Some(message)
    }

    /// Removes and returns the receives for which `lost` returns true, in the order of contexts and posting.
    pub(crate) fn remove_receives(&mut self, mut lost: impl FnMut(&MatchCriteria, &R) -> bool) -> Vec<R> {
        let mut removed = Vec::new();
        for queue in &mut self.queues {
            for (wanted, receive) in std::mem::take(&mut queue.receives) {
                if lost(&wanted, &receive) {
                    removed.push(receive);
                } else {
                    queue.receives.push_back((wanted, receive));
                }
            }
        }
        removed
    }

    /// Removes a context without posted receives; returns its unexpected messages.
    pub(crate) fn remove_context(&mut self, context: u64) -> Vec<(Envelope, M)> {
        match self.find_queue(context) {
            Some(queue) if queue.receives.is_empty() => {
                let messages = self.queues.remove(self.last).messages;
                self.waiting -= messages.len();
                messages.into()
            }
            _ => Vec::new(),
        }
    }

    /// The numbers of posted receives and of unexpected messages.
    pub(crate) fn queue_lengths(&self) -> (usize, usize) {
        (self.queues.iter().map(|queue| queue.receives.len()).sum(), self.waiting)
    }

    /// How many messages were kept in total, and the most at a time.
    pub(crate) fn unexpected_counts(&self) -> (u64, usize) {
        (self.kept, self.most)
    }

    /// How many entries were compared since this was last called.
    pub(crate) fn take_comparisons(&mut self) -> u64 {
        std::mem::take(&mut self.compared)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reference implementation of MPI's rules: two lists in the order of events.
    #[derive(Default)]
    struct ReferenceMatching {
        receives: Vec<(MatchCriteria, u32)>,
        messages: Vec<(Envelope, u32)>,
    }

    impl ReferenceMatching {
        fn fits(wanted: &MatchCriteria, envelope: &Envelope) -> bool {
            wanted.context == envelope.match_key.context
                && [None, Some(envelope.source)].contains(&wanted.source)
                && [None, Some(envelope.match_key.tag)].contains(&wanted.tag)
        }

        fn arrive(&mut self, envelope: Envelope, number: u32) -> Option<u32> {
            let at = self.receives.iter().position(|(wanted, _)| Self::fits(wanted, &envelope));
            if at.is_none() {
                self.messages.push((envelope, number));
            }
            at.map(|at| self.receives.remove(at).1)
        }

        fn receive(&mut self, wanted: MatchCriteria, number: u32) -> Option<u32> {
            let at = self.messages.iter().position(|(envelope, _)| Self::fits(&wanted, envelope));
            if at.is_none() {
                self.receives.push((wanted, number));
            }
            at.map(|at| self.messages.remove(at).1)
        }
    }

    #[derive(Clone, Debug)]
    enum MatchEvent {
        Arrive(Envelope),
        Receive(MatchCriteria),
        Probe(MatchCriteria),
        Cancel(u8),
        Withdraw(u8),
        Lose(u32),
    }

    fn events() -> impl Strategy<Value = Vec<MatchEvent>> {
        let envelope = (0..3_u32, 0..2_u64, 0..3_i32)
            .prop_map(|(source, context, tag)| Envelope { source, match_key: MatchKey { context, tag } });
        let wanted = (prop::option::of(0..3_u32), 0..2_u64, prop::option::of(0..3_i32))
            .prop_map(|(source, context, tag)| MatchCriteria { context, source, tag });
        let event = prop_oneof![
            5 => envelope.prop_map(MatchEvent::Arrive),
            5 => wanted.clone().prop_map(MatchEvent::Receive),
            2 => wanted.prop_map(MatchEvent::Probe),
            1 => any::<u8>().prop_map(MatchEvent::Cancel),
            1 => any::<u8>().prop_map(MatchEvent::Withdraw),
            1 => (0..3_u32).prop_map(MatchEvent::Lose),
        ];
        prop::collection::vec(event, 0..200)
    }

    proptest! {
        #[test]
        fn matching_agrees_with_reference(events in events()) {
            let (mut matching, mut reference) = (Matching::<u32, u32>::default(), ReferenceMatching::default());
            for (number, event) in (0_u32..).zip(events) {
                match event {
                    MatchEvent::Arrive(envelope) => {
                        let got = matching.match_arrival(&envelope);
                        if got.is_none() {
                            matching.add_unexpected(envelope, number);
                        }
                        prop_assert_eq!(got, reference.arrive(envelope, number));
                    }
                    MatchEvent::Receive(wanted) => {
                        let got = matching.take_unexpected(&wanted).map(|(_, message)| message);
                        if got.is_none() {
                            matching.post(wanted, number);
                        }
                        prop_assert_eq!(got, reference.receive(wanted, number));
                    }
                    MatchEvent::Probe(wanted) => {
                        let seen = reference.messages.iter().find(|(envelope, _)| ReferenceMatching::fits(&wanted, envelope));
                        prop_assert_eq!(matching.probe(&wanted), seen);
                    }
                    MatchEvent::Cancel(which) if !reference.receives.is_empty() => {
                        let (wanted, receive) = reference.receives.remove(usize::from(which) % reference.receives.len());
                        prop_assert_eq!(matching.criteria_of(&receive), Some(&wanted));
                        prop_assert!(matching.cancel(&receive));
                        prop_assert!(!matching.cancel(&receive));
                    }
                    MatchEvent::Cancel(_) => prop_assert!(!matching.cancel(&number)),
                    MatchEvent::Withdraw(which) if !reference.messages.is_empty() => {
                        let (envelope, message) = reference.messages.remove(usize::from(which) % reference.messages.len());
                        prop_assert_eq!(matching.remove_unexpected(envelope.source + 1, |one| *one == message), None);
                        prop_assert_eq!(matching.remove_unexpected(envelope.source, |one| *one == message), Some(message));
                        prop_assert_eq!(matching.remove_unexpected(envelope.source, |one| *one == message), None);
                    }
                    MatchEvent::Withdraw(_) => prop_assert_eq!(matching.remove_unexpected(0, |_| true), None),
                    MatchEvent::Lose(source) => {
                        let mut lost = matching.remove_receives(|wanted, _| wanted.source == Some(source));
                        let gone = reference.receives.extract_if(.., |(wanted, _)| wanted.source == Some(source));
                        let mut gone: Vec<u32> = gone.map(|(_, receive)| receive).collect();
                        lost.sort_unstable();
                        gone.sort_unstable();
                        prop_assert_eq!(lost, gone);
                    }
                }
            }
            for context in 0..2 {
                let busy = reference.receives.iter().any(|(wanted, _)| wanted.context == context);
                let left = reference.messages.iter().filter(|(e, _)| e.match_key.context == context && !busy);
                prop_assert_eq!(matching.remove_context(context), left.copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn match_counts_compared_entries() {
        let mut matching = Matching::<u32, u32>::default();
        let wanted = |tag| MatchCriteria { context: 0, source: None, tag: Some(tag) };
        (0..10).for_each(|tag| matching.post(wanted(tag), tag as u32));
        let envelope = Envelope { source: 0, match_key: MatchKey { context: 0, tag: 4 } };
        assert_eq!(matching.match_arrival(&envelope), Some(4));
        assert_eq!((matching.take_comparisons(), matching.take_comparisons()), (5, 0));
    }
}
