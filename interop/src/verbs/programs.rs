//! The cases of libibverbs and librdmacm: Debian's programs, unmodified, on our devices, started as a user does with
//! `nicety run`. Each case prints a table: program, device, result.

use crate::case::{Case, Verdict};
use crate::guest::tail;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use xtask::limited::Running;
use xtask::workspace::{Workspace, counted, run};

pub(crate) const CASES: &[Case<Clients>] = &[
    Case { name: "verbs-list", shows: "what describes devices", run: |clients| clients.run_all(LISTS) },
    Case {
        name: "verbs-pingpong",
        shows: "pairs that exchange their numbers",
        run: |clients| clients.run_all(PINGPONGS),
    },
    Case {
        name: "verbs-cm",
        shows: "pairs that are connected by librdmacm",
        run: |clients| clients.run_all(CM),
    },
    Case { name: "verbs-rsockets", shows: "rsockets", run: |clients| clients.run_all(RSOCKETS) },
    Case {
        name: "verbs-rspreload",
        shows: "socket programs under librspreload.so",
        run: |clients| clients.run_all(PRELOADED),
    },
    Case {
        name: "verbs-perftest",
        shows: "perftest without librdmacm",
        run: |clients| clients.run_all(PERFTEST),
    },
    Case {
        name: "verbs-perftest-cm",
        shows: "perftest over librdmacm",
        run: |clients| clients.run_all(PERFTEST_CM),
    },
    Case {
        name: "verbs-libfabric",
        shows: "libfabric's provider for verbs",
        run: |clients| clients.run_all(LIBFABRIC),
    },
    Case { name: "verbs-ucx", shows: "UCX over rc_verbs and ud_verbs", run: |clients| clients.run_all(UCX) },
    Case { name: "verbs-qperf", shows: "qperf", run: |clients| clients.run_all(QPERF) },
    Case { name: "verbs-fio", shows: "fio's engine for RDMA", run: |clients| clients.run_all(FIO) },
    Case {
        name: "verbs-qemu",
        shows: "a guest of QEMU that moves by RDMA",
        run: |clients| clients.run_all(QEMU),
    },
    Case { name: "verbs-mpi", shows: "Open MPI over UCX and libfabric", run: |clients| clients.run_all(MPI) },
];

/// How long one of the programs may run.
const LIMIT: Duration = Duration::from_secs(60);
/// The devices, each with the options of ibverbs-utils that its addresses need.
pub(crate) const DEVICES: [(&str, &str); 2] = [("shm", ""), ("iwarp@127.0.0.1", "-g 0")];

/// The port of the programs of rdmacm-utils that have no option for it.
const RDMACM_UTILS: u16 = 7174;

/// A program, or a server and its client. `PORT` is a free port, `GID` the options that a device's addresses need, and
/// `FOLDER` the folder with the cases' scripts.
pub(crate) struct ProgramRun {
    pub(crate) server: &'static str,
    /// How the client is started, or how a program without a client ends.
    pub(crate) end: RunEnd,
    /// Its output on success.
    pub(crate) says: &'static str,
}

pub(crate) enum RunEnd {
    Alone,
    /// No client; it runs until it is killed.
    Watches,
    /// No client; it fails because the feature is missing, and says so.
    Refused,
    /// The client has the same command line, followed by the server's address.
    Same,
    Client(&'static str),
    /// Like `Client`, but the server runs until it is killed.
    ClientOf(&'static str),
}

pub(crate) const fn alone(server: &'static str, says: &'static str) -> ProgramRun {
    ProgramRun { server, end: RunEnd::Alone, says }
}

pub(crate) const fn same(server: &'static str) -> ProgramRun {
    ProgramRun { server, end: RunEnd::Same, says: "" }
}

const fn two(server: &'static str, client: &'static str, says: &'static str) -> ProgramRun {
    ProgramRun { server, end: RunEnd::Client(client), says }
}

const fn refused(server: &'static str, says: &'static str) -> ProgramRun {
    ProgramRun { server, end: RunEnd::Refused, says }
}

const LISTS: &[ProgramRun] = &[
    alone("ibv_devices", "nicety0"),
    alone("ibv_devinfo -v", "PORT_ACTIVE (4)"),
    alone("ibv_devinfo -l", "1 HCA found"),
    ProgramRun { server: "ibv_asyncwatch", end: RunEnd::Watches, says: "nicety0: async event FD" },
];

const PINGPONGS: &[ProgramRun] = &[
    same("ibv_rc_pingpong -p PORT -c GID"),
    same("ibv_rc_pingpong -p PORT -c -e -s 4097 GID"),
    same("ibv_rc_pingpong -p PORT -c -s 1 -r 3 GID"),
    same("ibv_srq_pingpong -p PORT -c -q 3 GID"),
    same("ibv_srq_pingpong -p PORT -e GID"),
    same("ibv_ud_pingpong -p PORT -n 500 GID"),
    same("ibv_ud_pingpong -p PORT -n 500 -e -s 2048 GID"),
    refused("ibv_xsrq_pingpong -p PORT", "Couldn't Open the XRC Domain"),
    refused("ibv_uc_pingpong -p PORT", "Couldn't create QP"),
];

const CM: &[ProgramRun] = &[
    two(
        "rping -s -a 127.0.0.1 -p PORT -C 50 -V",
        "rping -c -a 127.0.0.1 -p PORT -C 50 -V -v",
        "rdma-ping-49",
    ),
    two(
        "rping -s -q -a 127.0.0.1 -p PORT -C 50 -V",
        "rping -c -q -a 127.0.0.1 -p PORT -C 50 -V -v",
        "rdma-ping-49",
    ),
    two("rdma_server -p PORT", "rdma_client -s 127.0.0.1 -p PORT", "end 0"),
    two("rdma_xserver -p PORT", "rdma_xclient -s 127.0.0.1 -p PORT", "end 0"),
    refused("mckey -m 224.0.0.1", ""),
    ProgramRun {
        server: "cmtime -b 127.0.0.1 -p PORT",
        end: RunEnd::ClientOf("cmtime -s 127.0.0.1 -p PORT -c 100"),
        says: "us / conn",
    },
    two("ucmatose -b 127.0.0.1 -p PORT", "ucmatose -s 127.0.0.1 -p PORT", "return status 0"),
    two("udaddy -b 127.0.0.1", "udaddy -s 127.0.0.1", "return status 0"),
];

const PERFTEST: &[ProgramRun] = &[
    same("ib_send_lat -p PORT -n 200"),
    same("ib_send_lat -p PORT -n 200 -e"),
    same("ib_send_lat -p PORT -n 200 -s 64 -I 64"),
    same("ib_send_bw -p PORT -n 200 -a"),
    same("ib_send_bw -p PORT -n 200 -b -q 4"),
    same("ib_send_bw -p PORT -n 200 -r 64 -Q 1"),
    same("ib_write_lat -p PORT -n 20 -a"),
    same("ib_write_bw -p PORT -n 200 -a"),
    same("ib_write_bw -p PORT -n 200 -b -q 4"),
    same("ib_read_lat -p PORT -n 20 -a"),
    same("ib_read_bw -p PORT -n 200 -e"),
    same("ib_atomic_lat -p PORT -n 200"),
    same("ib_atomic_bw -p PORT -n 200 -A CMP_AND_SWAP"),
    same("ib_send_lat -p PORT -n 200 -c UD"),
];

const PERFTEST_CM: &[ProgramRun] = &[
    same("ib_send_lat -R -p PORT -n 200"),
    same("ib_send_lat -R -p PORT -n 200 -e"),
    same("ib_send_bw -R -p PORT -n 200 -a"),
    same("ib_send_bw -R -p PORT -n 200 -b -q 4"),
    same("ib_write_lat -R -p PORT -n 200"),
    same("ib_write_bw -R -p PORT -n 200 -a -q 2"),
    same("ib_read_lat -R -p PORT -n 200"),
    same("ib_read_bw -R -p PORT -n 200 -e"),
    same("ib_atomic_lat -R -p PORT -n 200"),
    same("ib_atomic_bw -R -p PORT -n 200"),
    // As on RNICs, where the receiver of sends informs the sender by a write how many receives it has posted.
    same("env NICETY_VERBS_KIND=rnic ib_send_bw -R -p PORT -n 2000"),
    same("env NICETY_VERBS_KIND=rnic ib_send_bw -R -p PORT -n 2000 -b -e"),
    same("env NICETY_VERBS_KIND=rnic ib_write_lat -R -p PORT -n 200"),
];

const LIBFABRIC: &[ProgramRun] = &[
    alone("fi_info -p verbs", "domain: nicety0"),
    two(
        "fi_pingpong -p verbs -e msg -B PORT -c",
        "fi_pingpong -p verbs -e msg -P PORT -c 127.0.0.1",
        "bytes",
    ),
    two(
        "fi_pingpong -p verbs;ofi_rxm -e rdm -B PORT -c",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -P PORT -c 127.0.0.1",
        "bytes",
    ),
];

/// Programs that use rsockets.
const RSOCKETS: &[ProgramRun] = &[
    two("rstream -p PORT -S 64 -C 500 -T v", "rstream -s 127.0.0.1 -p PORT -S 64 -C 500 -T v", "custom"),
    two(
        "rstream -p PORT -S 1000003 -C 10 -T v -T n",
        "rstream -s 127.0.0.1 -p PORT -S 1000003 -C 10 -T v -T n",
        "custom",
    ),
    two(
        "rstream -p PORT -S 4097 -C 100 -T v -T a",
        "rstream -s 127.0.0.1 -p PORT -S 4097 -C 100 -T v -T a",
        "custom",
    ),
    two(
        "riostream -p PORT -S 5000 -C 5 -I 3 -T v",
        "riostream -s 127.0.0.1 -p PORT -S 5000 -C 5 -I 3 -T v",
        "custom",
    ),
    ProgramRun {
        server: "rcopy -p PORT",
        end: RunEnd::ClientOf("rcopy /etc/services 127.0.0.1:FOLDER/services -p PORT"),
        says: "bytes in",
    },
    refused("udpong -s 127.0.0.1", "rsocket failed: Operation not supported"),
];

/// Socket programs, whose sockets rdma-core's preloaded library makes rsockets.
const PRELOADED: &[ProgramRun] = &[
    two(
        "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so iperf3 -s -1 -p PORT",
        "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so iperf3 -c 127.0.0.1 -p PORT -n 50M",
        "iperf Done.",
    ),
    two(
        "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so iperf3 -s -1 -p PORT",
        "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so iperf3 -c 127.0.0.1 -p PORT -n 50M -P 3 -R",
        "iperf Done.",
    ),
    two(
        "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so socat -u TCP-LISTEN:PORT,reuseaddr -",
        "sh FOLDER/send.sh PORT",
        "every byte of the message",
    ),
];

/// Tests of qperf for connected queue pairs, in one session; those of datagrams need LIDs, which only `shm` has.
const QPERF: &[ProgramRun] = &[two(
    "qperf --listen_port PORT",
    "qperf 127.0.0.1 --listen_port PORT -t 1 -cm 1 rc_lat rc_bw rc_bi_bw rc_rdma_write_lat rc_rdma_write_bw \
     rc_rdma_write_poll_lat rc_rdma_read_lat rc_rdma_read_bw rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap \
     ver_rc_fetch_add quit",
    "ver_rc_fetch_add:",
)];

const FIO: &[ProgramRun] = &[
    two(
        "fio --name=receiver --ioengine=rdma --port=PORT --bs=64k --size=4m --rw=read --iodepth=16",
        "fio --name=sender --ioengine=rdma --hostname=127.0.0.1 --port=PORT --verb=write --bs=64k --size=4m --rw=write",
        "WRITE: bw",
    ),
    two(
        "fio --name=receiver --ioengine=rdma --port=PORT --bs=64k --size=4m --rw=read --iodepth=16",
        "fio --name=sender --ioengine=rdma --hostname=127.0.0.1 --port=PORT --verb=read --bs=64k --size=4m --rw=write",
        "WRITE: bw",
    ),
    // It connects without retries for messages that find no receive: all receives are posted before the first message.
    two(
        "fio --name=receiver --ioengine=rdma --port=PORT --bs=64k --size=4m --rw=read --iodepth=64",
        "fio --name=sender --ioengine=rdma --hostname=127.0.0.1 --port=PORT --verb=send --bs=64k --size=4m --rw=write",
        "WRITE: bw",
    ),
];

/// A script starts both ends.
const QEMU: &[ProgramRun] = &[
    alone("sh FOLDER/migrate.sh PORT", "Migration status: completed"),
    alone("sh FOLDER/migrate.sh PORT rdma-pin-all", "Migration status: completed"),
];

/// NetPIPE's two ranks; UCX also connects each rank with itself.
const MPI: &[ProgramRun] = &[
    alone(
        "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 UCX_TLS=rc_verbs,ud_verbs,self mpirun.openmpi \
         --oversubscribe -n 2 --mca pml ucx --mca osc ucx --mca btl ^openib,vader NPopenmpi -u 65536 -n 5 -o /dev/null",
        "65539 bytes",
    ),
    alone(
        "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -n 2 --mca pml cm \
         --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm --mca btl ^openib,vader NPopenmpi -u 65536 -n 5 -o /dev/null",
        "65539 bytes",
    ),
];

/// UCX uses its own shared memory unless its transports are given.
const UCX: &[ProgramRun] = &[
    alone("ucx_info -d", "Transport: ud_verbs"),
    two(
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT -t tag_lat -s 8 -n 500",
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT 127.0.0.1 -t tag_lat -s 8 -n 500",
        "Final:",
    ),
    two(
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT -t tag_bw -s 1000000 -n 50",
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT 127.0.0.1 -t tag_bw -s 1000000 -n 50",
        "Final:",
    ),
    two(
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT -t ucp_put_lat -n 500",
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT 127.0.0.1 -t ucp_put_lat -n 500",
        "Final:",
    ),
    two(
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT",
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT 127.0.0.1 -t ucp_get -s 10000 -n 500",
        "Final:",
    ),
    two(
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT",
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT 127.0.0.1 -t ucp_cswap -n 500",
        "Final:",
    ),
    two(
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT",
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT 127.0.0.1 -t stream_bw -s 10000 -n 500",
        "Final:",
    ),
    two(
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT",
        "env UCX_TLS=rc_verbs,ud_verbs ucx_perftest -p PORT 127.0.0.1 -t ucp_am_bw -n 500",
        "Final:",
    ),
    two(
        "ucx_perftest -p PORT -t am_lat -d nicety0:1 -x ud_verbs -n 500",
        "ucx_perftest -p PORT 127.0.0.1 -t am_lat -d nicety0:1 -x ud_verbs -n 500",
        "Final:",
    ),
    two(
        "ucx_perftest -p PORT",
        "ucx_perftest -p PORT 127.0.0.1 -t get -D zcopy -s 10000 -d nicety0:1 -x rc_verbs -n 500",
        "Final:",
    ),
    two(
        "ucx_perftest -p PORT",
        "ucx_perftest -p PORT 127.0.0.1 -t add_mr -d nicety0:1 -x rc_verbs -n 500",
        "Final:",
    ),
    two(
        "ucx_perftest -p PORT",
        "ucx_perftest -p PORT 127.0.0.1 -t cswap -d nicety0:1 -x rc_verbs -n 500",
        "Final:",
    ),
    // A queue pair that is connected to itself.
    alone("ucx_perftest -l -t get -D zcopy -s 10000 -d nicety0:1 -x rc_verbs -n 500", "Final:"),
    alone("ucx_perftest -l -t am_bw -d nicety0:1 -x rc_verbs -n 5000", "Final:"),
    // InfiniBand has no swap, and UCX does not emulate it on a single transport.
    refused(
        "ucx_perftest -l -t swap -d nicety0:1 -x rc_verbs -n 500",
        "does not support required 64-bit atomic: swap",
    ),
];

/// Output that reports a problem even though the program exits successfully.
const BAD: &[&str] = &["rror", "ailed", "nvalid data"];

/// Output without a problem: UCX's about every transport, and that of fio's client when its server, which does not
/// wait, has hung up before the client polled.
const HARMLESS: &[&str] = &["error handling:", "fio: cq completion status 5(Work Request Flushed Error)"];

/// Programs built for libibverbs and librdmacm, started by `nicety`.
pub(crate) struct Clients {
    nicety: PathBuf,
    folder: PathBuf,
    /// The folder that is searched for programs first.
    preferred: Option<PathBuf>,
    step: u32,
}

impl Clients {
    /// Builds our programs and libraries, as users have them.
    pub(crate) fn open(workspace: &Workspace) -> Result<Self> {
        let build = ["build", "--quiet", "--package", "nicety", "--package", "abi-verbs"];
        run(&mut workspace.cargo(&build))?;
        let folder = workspace.target().join("interop/verbs");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("migrate.sh"), include_str!("../../files/migrate.sh"))?;
        fs::write(folder.join("send.sh"), include_str!("../../files/send.sh"))?;
        Ok(Self { nicety: workspace.target().join("debug/nicety"), folder, preferred: None, step: 0 })
    }

    /// Like [`Clients::run_all`], with the programs of this folder where they exist.
    pub(crate) fn run_all_from(&mut self, folder: PathBuf, rows: &[ProgramRun]) -> Result<Verdict> {
        self.preferred = Some(folder);
        let verdict = self.run_all(rows);
        self.preferred = None;
        verdict
    }

    /// Runs each row on each device.
    fn run_all(&mut self, rows: &[ProgramRun]) -> Result<Verdict> {
        let (mut wrong, mut count) = (0, 0);
        for row in rows {
            for (device, gid) in DEVICES {
                let result = self.run_one(row, device, gid);
                let word = match (&result, &row.end) {
                    (Err(why), _) => format!("FAILED {why:#}"),
                    (Ok(()), RunEnd::Refused) => "refused".to_owned(),
                    (Ok(()), _) => "ok".to_owned(),
                };
                println!(
                    "  {:<44} {device:<16} {word}",
                    row.server.replace(" GID", "").replace(" -p PORT", "")
                );
                wrong += u32::from(result.is_err());
                count += 1;
            }
        }
        ensure!(wrong == 0, "{wrong} of {} failed", counted(count, "run"));
        Ok(Verdict(format!("{} ended as expected", counted(count, "run"))))
    }

    fn run_one(&mut self, row: &ProgramRun, device: &str, gid: &str) -> Result<()> {
        let port = match row.server.contains("PORT")
            || !matches!(row.end, RunEnd::Client(_) | RunEnd::ClientOf(_))
        {
            true => free_port()?,
            false => RDMACM_UTILS,
        };
        let folder = self.folder.display().to_string();
        let fill = |line: &str| {
            line.replace("PORT", &port.to_string()).replace("GID", gid).replace("FOLDER", &folder)
        };
        let line = fill(row.server);
        let mut server = self.start(device, &line)?;
        let client = match row.end {
            RunEnd::Alone => None,
            RunEnd::Watches => {
                ensure!(
                    server.wait_for_output(row.says, LIMIT)?,
                    "the output lacks {:?}: {}",
                    row.says,
                    tail(&server.output()?)
                );
                return Ok(());
            }
            RunEnd::Refused => {
                let finished = server.finish(LIMIT)?;
                let status = finished.status.context("it does not end")?;
                ensure!(!status.success(), "it is not refused: {}", tail(&finished.output));
                ensure!(
                    finished.output.contains(row.says),
                    "the output lacks {:?}: {}",
                    row.says,
                    tail(&finished.output)
                );
                return Ok(());
            }
            RunEnd::Same => Some(format!("{line} 127.0.0.1")),
            RunEnd::Client(client) | RunEnd::ClientOf(client) => Some(fill(client)),
        };
        let mut said = String::new();
        if let Some(client) = client {
            server.wait_for_listener(port, LIMIT)?;
            said = good(self.start(device, &client)?, "the client")?;
        }
        if !matches!(row.end, RunEnd::ClientOf(_)) {
            said += &good(server, "the server")?;
        }
        ensure!(said.contains(row.says), "the output lacks {:?}: {}", row.says, tail(&said));
        Ok(())
    }

    fn start(&mut self, device: &str, line: &str) -> Result<Running> {
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let preferred = self.preferred.iter().map(|folder| folder.join(program)).find(|path| path.exists());
        let mut command = self.command(device);
        command.arg(preferred.unwrap_or_else(|| program.into())).args(arguments.split_whitespace());
        self.start_command(&mut command)
    }

    /// The folder for the files of the cases.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The command that runs a program on a device; the caller appends the program.
    pub(crate) fn command(&self, device: &str) -> Command {
        let mut command = Command::new(&self.nicety);
        command.args(["run", "--device", device, "--"]);
        command
    }

    pub(crate) fn start_command(&mut self, command: &mut Command) -> Result<Running> {
        self.step += 1;
        Running::start(command, &self.folder.join(format!("{}.log", self.step)))
    }
}

/// A free port below the dynamic range: the system could give a dynamic one to another connection before the program
/// listens.
fn free_port() -> Result<u16> {
    let start = (std::process::id().wrapping_mul(37) % 10_000) as u16;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let ports = std::iter::repeat_with(|| 10_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000));
    let mut free = ports.take(1000).filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.next().context("no port below the dynamic ones is free")
}

/// The output of a program, which must succeed and report no problem.
fn good(running: Running, who: &str) -> Result<String> {
    let finished = running.finish(LIMIT)?;
    let said = finished.output.trim();
    match finished.status {
        None => bail!("{who} does not end: {}", tail(said)),
        Some(status) if !status.success() => bail!("{who} ends with {status}: {}", tail(said)),
        _ => {}
    }
    let says = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    let is_bad = |line: &&str| says(line, BAD) && !says(line, HARMLESS);
    let bad = said.lines().find(is_bad);
    bad.map_or(Ok(()), |bad| bail!("{who} says: {bad}"))?;
    Ok(finished.output)
}
