//! `nicety mpirun --call`: connects to the agent of another host through `nicety serve` there. mpirun uses it like ssh: its
//! standard input and output are the agent's.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::BorrowedFd;

use bench::token::Token;

use crate::error::{FAILED, Failure, OK, Outcome};

/// Connects, and returns once the agent has ended.
///
/// # Errors
/// If the server cannot be reached, or refuses the connection.
pub(super) fn run(to: &str, token: Option<&Token>) -> Outcome {
    let (mut agent, first_bytes) =
        bench::launch::call_agent(to, token).map_err(|why| Failure::run(why.to_string()))?;
    let failed = |why: io::Error| Failure::run(format!("{to}: {why}; try again"));
    let (to_agent, input) =
        (agent.try_clone().map_err(failed)?, unbuffered(rustix::stdio::stdin()).map_err(failed)?);
    let mut out = unbuffered(rustix::stdio::stdout()).map_err(failed)?;
    std::thread::spawn(move || forward_orders(input, to_agent));
    let passed = out.write_all(&first_bytes).and_then(|()| copy(&mut agent, &mut out));
    Ok(if passed.is_ok() { OK } else { FAILED })
}

/// A standard stream without Rust's line buffer.
fn unbuffered(stream: BorrowedFd<'_>) -> io::Result<File> {
    stream.try_clone_to_owned().map(File::from)
}

/// Not [`io::copy`]: its splice blocks inside the kernel while it holds the pipe, which also blocks the pipe's reader.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&bytes[..n])?,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}

/// Forwards mpirun's orders to the agent, and then the end of the stream.
fn forward_orders(mut input: File, mut to_agent: TcpStream) {
    // Errors need no report: the agent sees the end of the connection, and mpirun the end of this process.
    let _ = copy(&mut input, &mut to_agent);
    let _ = to_agent.shutdown(Shutdown::Write);
}
