//! [`call_agent`]: a client asks a server to start its program, and gets the connection to it.

use std::net::TcpStream;
use std::time::Duration;

use super::admission::prepare;
use super::control_stream::ControlStream;
use super::wire::Frame;
use crate::experiment::Fault;
use crate::token::Token;

/// How long a client waits for the server's word.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program of the server at `HOST:PORT`: the connection to it, and what it has said so far.
///
/// # Errors
/// If nobody serves there, or the server does not have this token or refuses.
pub fn call_agent(to: &str, token: Option<&Token>) -> Result<(TcpStream, Vec<u8>), Fault> {
    let mut control_stream = ControlStream::dial(to, token, PATIENCE)?;
    control_stream.set_patience(PATIENCE);
    control_stream.write(&Frame::Run).map_err(|why| control_stream.lost(&why))?;
    match control_stream.read().map_err(|why| control_stream.lost(&why))? {
        Frame::Runs => {}
        Frame::Refused { why } => return Err(Fault::Peer(format!("{to}: {why}"))),
        other => {
            return Err(Fault::Control(results::plain::line(&format!("{to}: {other:?} came out of turn"))));
        }
    }
    let (stream, came) = control_stream.into_stream();
    let lost = |why: std::io::Error| Fault::Connection(format!("{to}: {why}"));
    prepare(&stream).and_then(|()| stream.set_nonblocking(false)).map_err(lost)?;
    Ok((stream, came))
}
