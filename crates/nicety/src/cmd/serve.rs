//! `nicety serve`: the other side, which needs no options.

use std::net::SocketAddr;

use bench::plan::DEFAULT_PORT;

use crate::args::ServeArgs;
use crate::error::{Failure, OK, Outcome};
use crate::signals::Signals;
use crate::term::Stream;

/// Serves clients until a signal comes.
///
/// # Errors
/// When the address cannot be listened on.
pub(crate) fn run(args: &ServeArgs) -> Outcome {
    let signals = Signals::install()?;
    let mut first = true;
    // Nobody may be reading any more; clients are served all the same.
    let mut log = |line: &str| {
        let _ = Stream::Out.print(&format!("{line}\n"));
        if std::mem::take(&mut first) {
            let _ = Stream::Out.print(&hint(line, args.listen));
        }
    };
    bench::launch::serve(args.listen, &signals.stop, &mut log).map_err(Failure::run)?;
    Ok(OK)
}

/// How to reach the server, from the line that says where it listens.
fn hint(line: &str, asked: SocketAddr) -> String {
    let Some(at) = line.split(' ').find_map(|word| word.parse::<SocketAddr>().ok()) else {
        return String::new();
    };
    let (from, host) = match asked.ip() {
        ip if ip.is_unspecified() => ("another machine", "THIS-HOST".to_owned()),
        ip if ip.is_loopback() => ("another terminal of this machine", at.ip().to_string()),
        _ => ("another machine", at.ip().to_string()),
    };
    let host = if at.is_ipv6() && !host.starts_with('T') { format!("[{host}]") } else { host };
    let port = if at.port() == DEFAULT_PORT { String::new() } else { format!(":{}", at.port()) };
    format!("from {from}: nicety bench --peer {host}{port}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_what_one_would_type() {
        let hint =
            |at: &str, asked: &str| hint(&format!("listening at {at}"), asked.parse().expect("an address"));
        assert!(
            hint("127.0.0.1:7471", "127.0.0.1:7471")
                .ends_with("terminal of this machine: nicety bench --peer 127.0.0.1\n")
        );
        assert!(
            hint("0.0.0.0:9", "0.0.0.0:9").ends_with("another machine: nicety bench --peer THIS-HOST:9\n")
        );
        assert!(hint("[::1]:9", "[::1]:9").ends_with("--peer [::1]:9\n"));
        assert!(hint("10.0.0.2:41", "10.0.0.2:0").ends_with("--peer 10.0.0.2:41\n"));
    }
}
