//! Who connects to whom: what a process answers to one that wants to connect. Both sides come to the same, in whatever order
//! their attempts cross.

/// How far a process has come with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is no connection, and none is under way.
    None,
    /// This process asked for one.
    Asking,
    /// The peer asked for one, and this process said yes.
    Answering,
    /// There is one, or there was: nobody connects twice.
    Over,
}

/// What to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Yes; an own attempt is given up.
    Accept,
    /// The own attempt counts.
    Crossed,
    /// No.
    Refuse,
}

/// What process `me` answers to process `from`, which wants to connect: if both do, the attempt of the higher one counts.
pub(crate) fn answer<T: Ord>(stage: Stage, me: T, from: T) -> Answer {
    match stage {
        Stage::None => Answer::Accept,
        Stage::Asking if from > me => Answer::Accept,
        Stage::Asking => Answer::Crossed,
        Stage::Answering | Stage::Over => Answer::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever crosses, two processes end with one connection, the same at both. Method: all orders in which attempts and
    /// answers of two processes can be delivered, each process asking at most twice.
    #[test]
    fn two_processes_end_with_one_connection() {
        let mut ends = 0;
        explore(&mut State::default(), &mut ends);
        assert!(ends >= 10, "{ends} orders");
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Told {
        Ask,
        Yes,
        No,
        Crossed,
    }

    #[derive(Clone, Debug)]
    struct State {
        stages: [Stage; 2],
        /// Who asked for the connection that a process has.
        asked_by: [Option<usize>; 2],
        /// Messages on the way to each process, with whose attempt it is about.
        inbox: [Vec<(Told, usize)>; 2],
        asked: [bool; 2],
    }

    impl Default for State {
        fn default() -> Self {
            Self {
                stages: [Stage::None; 2],
                asked_by: [None; 2],
                inbox: [Vec::new(), Vec::new()],
                asked: [false; 2],
            }
        }
    }

    fn explore(state: &mut State, ends: &mut u32) {
        let mut moved = false;
        for me in 0..2 {
            if !state.asked[me] && state.stages[me] == Stage::None {
                let mut next = state.clone();
                (next.asked[me], next.stages[me]) = (true, Stage::Asking);
                next.inbox[1 - me].push((Told::Ask, me));
                explore(&mut next, ends);
                moved = true;
            }
            if !state.inbox[me].is_empty() {
                let mut next = state.clone();
                let (told, whose) = next.inbox[me].remove(0);
                deliver(&mut next, me, told, whose);
                explore(&mut next, ends);
                moved = true;
            }
        }
        if !moved {
            assert_eq!(state.stages, [Stage::Over; 2], "{state:?}");
            assert!(state.asked_by[0].is_some() && state.asked_by[0] == state.asked_by[1], "{state:?}");
            *ends += 1;
        }
    }

    fn deliver(state: &mut State, me: usize, told: Told, whose: usize) {
        let peer = 1 - me;
        match told {
            Told::Ask => match answer(state.stages[me], me as u32, peer as u32) {
                Answer::Accept => {
                    (state.stages[me], state.asked_by[me]) = (Stage::Over, Some(peer));
                    state.inbox[peer].push((Told::Yes, peer));
                }
                Answer::Crossed => state.inbox[peer].push((Told::Crossed, peer)),
                Answer::Refuse => state.inbox[peer].push((Told::No, peer)),
            },
            Told::Yes => (state.stages[me], state.asked_by[me]) = (Stage::Over, Some(whose)),
            // The own attempt counts no more, if it was not given up already: the peer's request is on the way.
            Told::Crossed | Told::No => {
                let crossed = told == Told::Crossed && state.stages[me] == Stage::Asking;
                assert!(crossed || state.asked_by[me] == Some(peer), "{state:?}");
            }
        }
    }
}
