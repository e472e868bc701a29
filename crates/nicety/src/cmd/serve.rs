//! `nicety serve`: the peer of measurements, which needs no options.

use std::net::SocketAddr;

use bench::launch::WorkerCommand;
use bench::plan::DEFAULT_PORT;
use bench_server::Serving;
use fabric::Reach;

use crate::args::ServeArgs;
use crate::error::{FAILED, Failure, OK, Outcome};
use crate::signals::Signals;
use crate::term::{Stream, remark};
use launcher::install_paths;

/// Serves clients until a signal arrives.
///
/// # Errors
/// If it cannot listen on the address.
pub(crate) fn run(args: &ServeArgs) -> Outcome {
    if let Some(device) = &args.device {
        fabric::check(device).map_err(Failure::usage)?;
    }
    let (device, token) = (args.device.clone(), args.token.read()?);
    let own = || {
        Ok::<_, Failure>(WorkerCommand {
            program: install_paths::own_program()?,
            args: ["mpirun", "--agent"].map(Into::into).into(),
        })
    };
    let agent = args.allow_run.then(own).transpose()?;
    let serving = Serving { listen: args.listen, device, token, agent };
    serving.check().map_err(|why| Failure::usage(format!("cannot serve: {why}")))?;
    let signals = Signals::install()?;
    let (mut first, mut is_written) = (true, true);
    // Clients are served even if the log cannot be written.
    let mut log = |line: &str| {
        let hint = if std::mem::take(&mut first) { hint(line, &serving) } else { String::new() };
        if let Err(failure) = Stream::Out.print(&format!("{line}\n{hint}"))
            && std::mem::take(&mut is_written)
        {
            failure.lines.iter().for_each(remark);
        }
    };
    bench_server::serve(&serving, &signals.stop, &mut log).map_err(Failure::run)?;
    Ok(if is_written { OK } else { FAILED })
}

/// How to reach the server; printed after the line with its address.
fn hint(line: &str, serving: &Serving) -> String {
    let asked = serving.listen;
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
    let kind = match serving.device.as_deref() {
        Some(device) => Some(fabric::word(device).to_owned()),
        None if asked.ip().is_loopback() => None,
        // Not shared memory, the default: it does not reach other machines.
        None => fabric::list().into_iter().find(|e| e.reach == Reach::Network).map(|entry| entry.name),
    };
    let kind = kind.map_or_else(String::new, |kind| format!("--device {kind} "));
    // How the client gets the token is left to the user.
    let token = if serving.token.is_some() { " --token-file FILE" } else { "" };
    format!("from {from}: nicety bench {kind}--peer {host}{port}{token}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::token::Token;

    #[test]
    fn hint_is_a_command_line_for_the_client() {
        let serving = |asked: &str, device: Option<&str>| {
            let listen: SocketAddr = asked.parse().expect("an address");
            let token = if listen.ip().is_loopback() { None } else { Token::random().ok() };
            Serving { listen, device: device.map(str::to_owned), token, agent: None }
        };
        let hint = |at: &str, asked: &str| hint(&format!("listening at {at}"), &serving(asked, None));
        assert!(
            hint("127.0.0.1:7471", "127.0.0.1:7471")
                .ends_with("terminal of this machine: nicety bench --peer 127.0.0.1\n")
        );
        assert!(hint("0.0.0.0:9", "0.0.0.0:9").ends_with(
            "another machine: nicety bench --device iwarp --peer THIS-HOST:9 --token-file FILE\n"
        ));
        assert!(hint("[::1]:9", "[::1]:9").ends_with("--peer [::1]:9\n"));
        assert!(
            hint("10.0.0.2:41", "10.0.0.2:0")
                .ends_with("--device iwarp --peer 10.0.0.2:41 --token-file FILE\n")
        );
        let offered =
            super::hint("listening at 127.0.0.1:7471", &serving("127.0.0.1:7471", Some("iwarp@::1")));
        assert!(offered.ends_with("nicety bench --device iwarp --peer 127.0.0.1\n"), "{offered}");
    }
}
