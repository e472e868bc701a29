//! The environment of a case: the guest, our programs, and a capture of their traffic.

use super::archive::Entry;
use super::capture::{Capture, Direction, Judgement};
use super::image::Image;
use super::{Guest, Job, Machine, Port, tail};
use crate::case::Verdict;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::limited::{Finished, Running};
use xtask::packages::is_root;
use xtask::workspace::{Workspace, run};

/// Our own files in the guest.
pub(crate) const INIT: &[u8] = include_bytes!("../../files/init");
pub(crate) const AGENT: &[u8] = include_bytes!("../../files/agent");
/// How long one of our programs may run.
pub(crate) const OURS: Duration = Duration::from_secs(120);

/// The parameters of siw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Siw {
    /// It requires CRCs.
    pub(crate) crc: bool,
    /// The MPA revision of its requests.
    pub(crate) mpa: u32,
    /// It asks for peer-to-peer connections.
    pub(crate) peer_to_peer: bool,
    /// The ready-to-receive messages that it then offers.
    pub(crate) rtr: u32,
}

/// Siw's ready-to-receive messages, as its parameter encodes them: bits of a big-endian number, read as little-endian.
pub(crate) const RTR_WRITE: u32 = 0x0080;
pub(crate) const RTR_READ: u32 = 0x0040;

impl Default for Siw {
    /// The defaults of the guest.
    fn default() -> Self {
        Self { crc: false, mpa: 2, peer_to_peer: false, rtr: RTR_WRITE | RTR_READ }
    }
}

/// The environment of the cases.
pub(crate) struct Testbed {
    pub(crate) guest: Guest,
    folder: PathBuf,
    ours: PathBuf,
    siw: Siw,
    case: &'static str,
    step: u32,
}

impl Testbed {
    /// Builds everything and boots the guest.
    pub(crate) fn open(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target().join("interop");
        let began = Instant::now();
        let (image, made) = Image::find_or_make(&folder.join("image")).context("the guest cannot be made")?;
        if made {
            println!("interop: made the guest in {:.0} s", began.elapsed().as_secs_f64());
        }
        println!("interop: {}", image.versions.join(", "));
        let run_folder = folder.join("run");
        let _ = fs::remove_dir_all(&run_folder);
        fs::create_dir_all(&run_folder)?;
        let peer = run_folder.join("peer");
        image.compile(&workspace.root.join("interop/files/peer.c"), &peer)?;
        run(&mut workspace.cargo(&[
            "build",
            "--quiet",
            "--package",
            "nicety",
            "--package",
            "abi-verbs",
            "--package",
            "nic-iwarp",
            "--bin",
            "nicety",
            "--lib",
            "--example",
            "rping",
            "--example",
            "interop",
        ]))?;
        let own = [
            Entry::program("init", INIT),
            Entry::program("agent", AGENT),
            Entry::program("bin/peer", &fs::read(&peer)?),
        ];
        let machine = Machine { memory_mib: 512, processors: 1 };
        let guest = Guest::boot(&image, &own, &run_folder, machine)?;
        println!("interop: the guest booted in {:.1} s ({})", guest.boot.as_secs_f64(), guest.accelerator);
        let ours = workspace.target().join("debug/examples");
        Ok(Self { guest, folder: run_folder, ours, siw: Siw::default(), case: "", step: 0 })
    }

    /// Begins another case.
    pub(crate) fn begin(&mut self, case: &'static str) {
        (self.case, self.step) = (case, 0);
    }

    /// Sets siw's parameters, for later connections.
    pub(crate) fn siw(&mut self, wanted: Siw) -> Result<()> {
        if wanted == self.siw {
            return Ok(());
        }
        self.guest.set("mpa_crc_required", wanted.crc.into())?;
        self.guest.set("mpa_version", wanted.mpa)?;
        self.guest.set("peer_to_peer", wanted.peer_to_peer.into())?;
        self.guest.set("rtr_type", wanted.rtr)?;
        self.siw = wanted;
        Ok(())
    }

    /// The path of a file of this case.
    pub(crate) fn file(&mut self, extension: &str) -> PathBuf {
        self.step += 1;
        self.folder.join(format!("{}-{}.{extension}", self.case, self.step))
    }

    /// Starts one of our programs: `rping` or `interop`.
    pub(crate) fn ours(&mut self, program: &str, arguments: &str) -> Result<Running> {
        let log = self.file("log");
        Running::start(Command::new(self.ours.join(program)).args(arguments.split_whitespace()), &log)
    }

    /// Starts a third-party program on our libraries.
    pub(crate) fn program(&mut self, line: &str) -> Result<Running> {
        let log = self.file("log");
        let mut nicety = Command::new(self.ours.with_file_name("nicety"));
        nicety.args(["run", "--rnic", "--device", "iwarp@127.0.0.1", "--"]).args(line.split_whitespace());
        Running::start(&mut nicety, &log)
    }

    /// A port that is free now.
    pub(crate) fn free_port() -> Result<u16> {
        Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
    }

    /// Starts a program of ours that listens; returns the port as well.
    pub(crate) fn ours_listening(&mut self, program: &str, arguments: &str) -> Result<(Running, u16)> {
        let port = Self::free_port()?;
        let arguments = arguments.replace("ADDR", &format!("127.0.0.1:{port}"));
        let mut running = self.ours(program, &arguments)?;
        let listens = running.wait_for_output("listening at", OURS)?;
        ensure!(listens, "{program} does not listen: {}", tail(&running.output()?));
        Ok((running, port))
    }

    /// Starts to capture a port on our side, if this process may.
    pub(crate) fn capture(&mut self, port: u16) -> Result<Option<Capture>> {
        if !is_root() {
            return Ok(None);
        }
        let file = self.file("pcapng");
        Capture::begin(port, &file).map(Some)
    }

    /// Connects our program (`arguments` with ADDR for the address) to a program in the guest (`script` with PORT for
    /// its port). Both must succeed, and tshark must find nothing.
    pub(crate) fn connect(&mut self, program: &str, arguments: &str, script: &str) -> Result<Verdict> {
        let port = self.guest.port()?;
        let job = self.serve(script, port)?;
        let capture = self.capture(port.outside)?;
        let arguments = arguments.replace("ADDR", &format!("127.0.0.1:{}", port.outside));
        let ours = self.ours(program, &arguments)?.finish(OURS)?;
        let theirs = job.wait();
        let judgement = capture.map(|capture| capture.judge(Direction::To)).transpose()?;
        ensure!(ours.is_good(), "ours: {}\nin the guest: {:?}", tail(&ours.output), theirs);
        passed(&ours, judgement, arguments.contains("crc=1") || self.siw.crc)
    }

    /// Connects a program in the guest (`script` with HOST and PORT) to ours.
    pub(crate) fn accept(&mut self, program: &str, arguments: &str, script: &str) -> Result<Verdict> {
        let (ours, port) = self.ours_listening(program, arguments)?;
        let capture = self.capture(port)?;
        let script = script.replace("HOST", super::HOST_INSIDE).replace("PORT", &port.to_string());
        let theirs = self.guest.run(&script, OURS.as_secs() as u32)?;
        // Our program would wait forever without a peer.
        let ours = ours.finish(if theirs.status == 0 { OURS } else { Duration::from_secs(3) })?;
        let judgement = capture.map(|capture| capture.judge(Direction::From)).transpose()?;
        ensure!(ours.is_good(), "ours: {}\nin the guest: {}", tail(&ours.output), tail(&theirs.output));
        theirs.good()?;
        passed(&ours, judgement, arguments.contains("crc=1") || self.siw.crc)
    }

    /// Starts a program in the guest that listens on a port.
    pub(crate) fn serve(&self, script: &str, port: Port) -> Result<Job> {
        self.guest.serve(&script.replace("PORT", &port.inside.to_string()), port, OURS.as_secs() as u32)
    }
}

/// The output of our program, with tshark's verdict.
fn passed(ours: &Finished, judgement: Option<Judgement>, crc: bool) -> Result<Verdict> {
    let said = ours.output.lines().rev().find_map(|line| line.strip_prefix("ok: ")).unwrap_or("done");
    let judged = match judgement {
        Some(judgement) => judgement.verdict(crc)?,
        None => "not judged by tshark: capturing needs root".into(),
    };
    Ok(Verdict(format!("{said}; {judged}")))
}
