//! `nicety` without a command: shows the commands to begin with.

use crate::error::{OK, Outcome};
use crate::term::{Paint, Stream};

const STEPS: [(&str, &str); 3] = [
    ("nicety doctor", "checks this machine for what spoils measurements, with remedies"),
    ("nicety bench --quick", "measures an overview in about half a minute, and writes an HTML report"),
    ("nicety bench latency --size 8", "measures one experiment with narrow intervals"),
];

/// Prints the three commands to try first.
///
/// # Errors
/// Output that cannot be written.
pub(crate) fn run() -> Outcome {
    let colour = Stream::Out.colour();
    let mut text =
        "nicety: RDMA in software on Linux, with every microsecond accounted for.\n\nTry first:\n".to_owned();
    for (command, what) in STEPS {
        text += &format!("  {}\n      {what}\n", Paint::Strong.on(command, colour));
    }
    text +=
        "\n`nicety --help` lists all commands; `nicety COMMAND --help` explains one and shows examples.\n";
    Stream::Out.print(&text)?;
    Ok(OK)
}
