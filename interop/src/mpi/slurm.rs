//! Slurm on this machine alone: a controller and one node, which end when [`Slurm`] is dropped.

use anyhow::{Result, ensure};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::limited::Running;

/// How long either daemon may take to start.
const LIMIT: Duration = Duration::from_secs(60);
/// Needs no other services: no munge, no control groups, no accounts. The node claims more processors than there may
/// be, so that four ranks start immediately.
const CONFIG: &str = "\
ClusterName=interop
AuthType=auth/none
CredType=cred/none
CryptoType=crypto/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES State=UP
NodeName=one NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN";

/// Both daemons. The node ends first.
pub(crate) struct Slurm {
    config: PathBuf,
    _node: Running,
    _controller: Running,
}

impl Slurm {
    /// Starts both daemons; their output goes into `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let _ = fs::remove_dir_all(folder);
        let [state, spool] = ["state", "spool"].map(|name| folder.join(name));
        fs::create_dir_all(&state)?;
        fs::create_dir_all(&spool)?;
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let host = host.trim().split('.').next().unwrap_or_default();
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|port| port.local_addr());
        let (controller, node) = (free()?.port(), free()?.port());
        let own = format!(
            "{CONFIG} NodeHostname={host}\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmdPort={node}\n\
             StateSaveLocation={}\nSlurmdSpoolDir={}\nSlurmctldPidFile={}\nSlurmdPidFile={}\n",
            state.display(),
            spool.display(),
            folder.join("controller.pid").display(),
            folder.join("node.pid").display(),
        );
        let config = folder.join("slurm.conf");
        fs::write(&config, own)?;
        let daemon = |words: &[&str], sign: &str| -> Result<Running> {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).env("SLURM_CONF", &config);
            let mut running = Running::start(&mut command, &folder.join(format!("{}.log", words[0])))?;
            let is_up = running.wait_for_output(sign, LIMIT)?;
            ensure!(is_up, "{} does not start: {}", words[0], running.output()?);
            Ok(running)
        };
        let controller = daemon(&["slurmctld", "-D"], "Running as primary controller")?;
        let node = daemon(&["slurmd", "-D", "-N", "one"], "slurmd started")?;
        Ok(Self { config, _node: node, _controller: controller })
    }

    /// The srun command for this many processes; the caller appends the program.
    pub(crate) fn srun(&self, options: &[&str], processes: u32) -> Command {
        let mut command = Command::new("srun");
        command.env("SLURM_CONF", &self.config).args(options).args(["-n", &processes.to_string()]);
        command
    }
}
