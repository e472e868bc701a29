//! The guest: QEMU as a child process, which ends when its [`Guest`] is dropped, and commands inside.
//!
//! | file | what it holds |
//! |---|---|
//! | `image`, `archive` | the guest's kernel and files, made of Debian's packages |
//! | `capture` | packets on the wire, and tshark's verdict on them |
//! | `proxy` | a proxy between the two ends that flips, delays and adds bytes |
//! | `testbed` | the environment of a case |
//! | `cases`, `programs` | cases with our own programs; cases with third-party programs at both ends |
//! | `cards`, `differences` | our device `hw` in the guest, on Linux's software cards, and the tests that these fail |

pub(crate) mod archive;
mod capture;
pub(crate) mod cards;
pub(crate) mod cases;
mod differences;
pub(crate) mod image;
pub(crate) mod programs;
mod proxy;
pub(crate) mod testbed;

use anyhow::{Context, Result, bail, ensure};
use archive::{Entry, write_archive};
use image::Image;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};
use xtask::limited::{Running, SMALL_LIMIT};

/// The agent's port inside the guest, and the first port for programs that listen in it.
const AGENT: u16 = 1;
const FIRST: u16 = 7200;
/// The number of ports: each is used once, since a closed connection keeps its port for a minute.
const PORTS: u16 = 96;
/// How long booting may take; an emulated processor takes 4 to 30 s.
const BOOT: Duration = Duration::from_secs(180);
/// Seconds after which a guest that was left behind shuts down.
const LIFETIME: u32 = 2400;
/// The line that the guest prints when it is ready.
const READY: &str = "interop: ready";

/// The address of this host, as the guest sees it, and of the guest itself.
pub(crate) const HOST_INSIDE: &str = "10.0.2.2";
pub(crate) const GUEST_INSIDE: &str = "10.0.2.15";

/// The size of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) memory_mib: u32,
    pub(crate) processors: u32,
}

/// A running guest.
pub(crate) struct Guest {
    qemu: Running,
    token: String,
    agent: u16,
    /// Host ports of the guest's ports, from `FIRST` on.
    forwarded: Vec<u16>,
    used: usize,
    /// How the processor is run: `kvm` or `tcg`.
    pub(crate) accelerator: &'static str,
    /// How long booting took.
    pub(crate) boot: Duration,
}

/// A port on which a program in the guest can listen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// The port in the guest.
    pub(crate) inside: u16,
    /// The port on 127.0.0.1 here.
    pub(crate) outside: u16,
}

/// A command that runs in the guest.
pub(crate) struct Job(JoinHandle<Result<Ended>>);

/// The result of a command in the guest.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit status; 137 if it was killed after its limit.
    pub(crate) status: i32,
    /// Its output.
    pub(crate) output: String,
}

impl Ended {
    /// The output of a command that must have succeeded.
    pub(crate) fn good(self) -> Result<String> {
        ensure!(self.status == 0, "in the guest it ended with {}:\n{}", self.status, tail(&self.output));
        Ok(self.output)
    }
}

/// The last lines of a text.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

impl Job {
    /// Waits for its end; its limit bounds the wait.
    pub(crate) fn wait(self) -> Result<Ended> {
        self.0.join().unwrap_or_else(|_| bail!("the thread that waits for the guest broke"))
    }
}

/// Detects whether this machine can run a guest at native speed. Some nested machines have a /dev/kvm that cannot.
fn accelerator() -> &'static str {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let able = flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
    let open = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if able && open.is_ok() { "kvm" } else { "tcg" }
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Ports that are free now.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    // All are held until all are found, so that they differ.
    let held =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
    Ok(held.iter().map(|socket| socket.local_addr().map(|addr| addr.port())).collect::<Result<_, _>>()?)
}

impl Guest {
    /// Boots the image, with our own files added.
    pub(crate) fn boot(image: &Image, own: &[Entry], folder: &Path, machine: Machine) -> Result<Self> {
        let initrd = folder.join("initrd");
        let mut to = std::io::BufWriter::new(fs::File::create(&initrd)?);
        std::io::copy(&mut fs::File::open(image.base())?, &mut to)?;
        write_archive(own, &mut to)?;
        to.flush()?;
        drop(to);
        let token = random_token()?;
        let settings = folder.join("settings");
        fs::write(&settings, format!("TOKEN={token}\nLIFETIME={LIFETIME}\n"))?;
        let console = folder.join("console");
        // Another process may take a free port before QEMU does.
        let mut last = None;
        for _ in 0..3 {
            let ports = free_ports(usize::from(PORTS) + 1)?;
            match Self::start(image, &initrd, &settings, &console, ports, token.clone(), machine) {
                Ok(guest) => return Ok(guest),
                Err(why) if why.to_string().contains("host forwarding") => last = Some(why),
                Err(why) => return Err(why),
            }
        }
        Err(last.context("no ports")?)
    }

    fn start(
        image: &Image,
        initrd: &Path,
        settings: &Path,
        console: &Path,
        mut forwarded: Vec<u16>,
        token: String,
        machine: Machine,
    ) -> Result<Self> {
        let (accelerator, began) = (accelerator(), Instant::now());
        let agent = forwarded.pop().context("a port for the agent")?;
        let mut net = format!("user,id=net,ipv6=off,hostfwd=tcp:127.0.0.1:{agent}-:{AGENT}");
        for (inside, outside) in (FIRST..).zip(&forwarded) {
            net += &format!(",hostfwd=tcp:127.0.0.1:{outside}-:{inside}");
        }
        let quoted = |path: &PathBuf| path.display().to_string().replace(',', ",,");
        let _ = fs::remove_file(console);
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.arg("-machine").arg(format!("q35,accel={accelerator}"));
        qemu.args(["-cpu", if accelerator == "kvm" { "host" } else { "max" }, "-m"]);
        qemu.arg(machine.memory_mib.to_string()).arg("-smp").arg(machine.processors.to_string());
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.arg("-serial").arg(format!("file:{}", quoted(&console.to_owned())));
        qemu.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(initrd);
        qemu.args([
            "-append",
            "console=ttyS0 loglevel=4 panic=-1 oops=panic mitigations=off random.trust_cpu=on",
        ]);
        qemu.arg("-fw_cfg").arg(format!("name=opt/interop,file={}", quoted(&settings.to_owned())));
        qemu.arg("-netdev").arg(net).args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        let qemu = Running::start(&mut qemu, &console.with_extension("qemu"))?;
        let boot = Duration::ZERO;
        let mut guest = Self { qemu, token, agent, forwarded, used: 0, accelerator, boot };
        loop {
            let text = fs::read(console).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            if text.contains(READY) && guest.run("true", 10).is_ok_and(|ended| ended.status == 0) {
                break;
            }
            if let Some(said) = guest.qemu.exit_report()? {
                bail!("the guest ended while it booted: {said}\n{}", tail(&text));
            }
            ensure!(
                began.elapsed() < BOOT,
                "the guest is not ready after {BOOT:?}; it says:\n{}",
                tail(&text)
            );
            sleep(Duration::from_millis(50));
        }
        guest.boot = began.elapsed();
        Ok(guest)
    }

    /// A port that was not used before.
    pub(crate) fn port(&mut self) -> Result<Port> {
        let outside = *self.forwarded.get(self.used).context("all ports of the guest have been used")?;
        self.used += 1;
        Ok(Port { inside: FIRST + (self.used - 1) as u16, outside })
    }

    /// Starts a command; it is killed after `limit` seconds.
    pub(crate) fn begin(&self, script: &str, limit: u32) -> Job {
        let (token, script, agent) = (self.token.clone(), script.to_owned(), self.agent);
        Job(thread::spawn(move || call_agent(agent, &token, &script, limit)))
    }

    /// Runs a command, for at most `limit` seconds.
    pub(crate) fn run(&self, script: &str, limit: u32) -> Result<Ended> {
        call_agent(self.agent, &self.token, script, limit)
    }

    /// Starts a program that listens, and waits until it does.
    pub(crate) fn serve(&self, script: &str, port: Port, limit: u32) -> Result<Job> {
        let job = self.begin(script, limit);
        let listens = format!("rdma resource show cm_id | grep -q 'state LISTEN.*:{} '", port.inside);
        let wait = format!("for i in $(seq 200); do {listens} && exit 0; sleep 0.05; done; exit 1");
        if self.run(&wait, SMALL_LIMIT)?.status == 0 {
            return Ok(job);
        }
        let ended = job.wait()?;
        bail!("it does not listen in the guest: `{script}` said\n{}", tail(&ended.output))
    }

    /// Sets a parameter of siw.
    pub(crate) fn set(&self, parameter: &str, value: u32) -> Result<()> {
        let script = format!("echo {value} >/sys/module/siw/parameters/{parameter}");
        self.run(&script, SMALL_LIMIT)?.good().map(drop)
    }
}

fn call_agent(agent: u16, token: &str, script: &str, limit: u32) -> Result<Ended> {
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, agent)).context("the guest cannot be reached")?;
    stream.set_read_timeout(Some(Duration::from_secs(u64::from(limit) + 30)))?;
    write!(stream, "{token} {limit}\n{script}\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).context("the guest does not answer")?;
    let text = String::from_utf8_lossy(&bytes);
    let (output, status) = text.rsplit_once('\0').context("the guest broke off")?;
    Ok(Ended {
        status: status.trim().parse().context("the guest gave no status")?,
        output: output.to_owned(),
    })
}
