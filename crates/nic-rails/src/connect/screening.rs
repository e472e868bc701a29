//! Screens of a device of rails. They run in the NIC of a rail: requests from other kinds of devices, and requests for
//! lanes of unknown connections, never reach this device.

use std::any::Any;
use std::sync::Arc;

use verbs::provider::apply_screen;
use verbs::{ConnInfo, Screen, ScreenRequest, Verdict};

use crate::connect::hello::{Hello, LaneHello, RequestKind, refusal};
use crate::connect::tokens::Tokens;
use crate::shared::DeviceShared;

/// A request to one of the program's listeners.
pub(crate) struct ScreenedRequest {
    pub(crate) hello: Hello,
    /// The private data of the peer's program.
    pub(crate) rest: Vec<u8>,
    /// The result of the program's screen.
    pub(crate) screened: Option<Box<dyn Any + Send>>,
}

/// The screen of the program's listeners, which listen on rail 0.
pub(crate) struct ListenerScreen {
    rails: usize,
    private_data_max: usize,
    of_program: Option<Arc<dyn Screen>>,
}

impl ListenerScreen {
    pub(crate) fn new(shared: &DeviceShared, of_program: Option<Arc<dyn Screen>>) -> Self {
        let private_data_max = shared.attr.max_private_data as usize;
        Self { rails: shared.width(), private_data_max, of_program }
    }
}

impl Screen for ListenerScreen {
    fn screen(&self, request: &ScreenRequest<'_>) -> Verdict {
        let fits = |hello: &Hello| {
            hello.kind == RequestKind::New && hello.lane == 0 && hello.rails as usize == self.rails
        };
        let Some((hello, rest)) = Hello::read(request.private_data).filter(|(hello, _)| fits(hello)) else {
            // A peer of another kind, or with another number of rails; the answer contains the reason.
            return Verdict::Reject(refusal(self.rails));
        };
        let info = ConnInfo::of_ends(request.info.local, request.info.peer);
        match apply_screen(self.of_program.as_ref(), rest, info, self.private_data_max) {
            Ok(screened) => Verdict::Pass(Box::new(ScreenedRequest { hello, rest: rest.to_vec(), screened })),
            Err(words) => Verdict::Reject(words),
        }
    }
}

/// A request for a further lane of a connection.
pub(crate) struct ScreenedJoin {
    pub(crate) hello: Hello,
    pub(crate) lane_hello: LaneHello,
}

/// The screen of a rail's join listener. It passes only requests with the token of a connection.
pub(crate) struct JoinScreen {
    tokens: Arc<Tokens>,
    rails: usize,
    rail: usize,
}

impl JoinScreen {
    pub(crate) fn new(tokens: &Arc<Tokens>, rails: usize, rail: usize) -> Self {
        Self { tokens: tokens.clone(), rails, rail }
    }
}

impl Screen for JoinScreen {
    fn screen(&self, request: &ScreenRequest<'_>) -> Verdict {
        let fits = |hello: &Hello| {
            let is_here = hello.lane as usize == self.rail && hello.rails as usize == self.rails;
            hello.kind == RequestKind::Join && is_here && self.tokens.contains(hello.token)
        };
        let read = || {
            let (hello, rest) = Hello::read(request.private_data).filter(|(hello, _)| fits(hello))?;
            Some(ScreenedJoin { hello, lane_hello: LaneHello::read(rest)?.0 })
        };
        read().map_or_else(|| Verdict::Reject(Vec::new()), |asked| Verdict::Pass(Box::new(asked)))
    }
}
