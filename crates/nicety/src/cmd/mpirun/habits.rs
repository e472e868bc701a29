//! The options that people know from MPICH and Open MPI: what each does here, or would have done there. `translate` follows this
//! table, the help of mpirun and the pages of the book are tested against it, and the end-to-end tests run every row.

/// The launchers that have an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// `mpiexec` of MPICH (Hydra) and of libraries made from it, such as Intel MPI.
    Mpich,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// Both, or the MPI standard.
    Both,
}

/// What an option does here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Does {
    /// Has the effect of this option of ours, with the same value.
    Is(&'static str),
    /// Has the effect of these words of ours, in which `{}` is the value.
    Means(&'static [&'static str]),
    /// Sets a variable, given as `NAME VALUE` or `NAME=VALUE`, by this option of ours.
    Variable(&'static str),
    /// Passes variables, separated by commas, by this option of ours.
    Variables(&'static str),
    /// Searches programs in this folder first.
    Path,
    /// Selects a network between hosts, if the value is one.
    Network,
    /// Numbers ranks by slot or by node.
    RankBy,
    /// Switches something on, if the value is not 0, no, off or false.
    Switch(&'static [&'static str]),
    /// The reverse.
    SwitchOff(&'static [&'static str]),
    /// A list of settings of the output.
    OutputList,
    /// Reads programs and their options from a file.
    Programs,
    /// A parameter of Open MPI: see [`MCA`].
    Parameter,
    /// Prints the version.
    Version,
    /// Nothing, because it is so here.
    Already,
    /// Nothing; a line says what it would have done.
    Ignored,
}

/// An option of other launchers.
#[derive(Debug)]
pub(crate) struct Habit {
    /// Its names, which one or two dashes may precede.
    pub(crate) names: &'static [&'static str],
    /// Its values; two are separated by a blank.
    pub(crate) value: &'static str,
    pub(crate) origin: Origin,
    pub(crate) does: Does,
    /// What it does. If it is ignored: what it would have done, after its name.
    pub(crate) text: &'static str,
}

/// A parameter or variable of other libraries.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its name; one with `*` at the end is the beginning of names.
    pub(crate) name: &'static str,
    pub(crate) does: Does,
    pub(crate) text: &'static str,
}

impl Key {
    /// Whether this is the key of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == self.name,
        }
    }
}

use Does::{
    Already, Ignored, Is, Means, Network, OutputList, Parameter, Path, Programs, RankBy, Switch, SwitchOff,
    Variable, Variables, Version,
};
use Origin::{Both, Mpich, OpenMpi};

/// A row of the table.
const fn habit(
    names: &'static [&'static str],
    value: &'static str,
    origin: Origin,
    does: Does,
    text: &'static str,
) -> Habit {
    Habit { names, value, origin, does, text }
}

const fn key(name: &'static str, does: Does, text: &'static str) -> Key {
    Key { name, does, text }
}

/// All known options.
#[rustfmt::skip]
pub(crate) const HABITS: &[Habit] = &[
    // Ranks and programs.
    habit(&["n", "np"], "N", Both, Is("-n"), "number of ranks; one by default"),
    habit(&["c"], "N", OpenMpi, Is("-n"), "number of ranks"),
    habit(&["ppn", "perhost"], "N", Mpich, Is("--per-host"), "ranks on each host in turn; without `-n`, N on every host"),
    habit(&["N", "npernode"], "N", OpenMpi, Is("--per-host"), "ranks on each host in turn; without `-n`, N on every host"),
    habit(&["pernode"], "", OpenMpi, Means(&["--per-host", "1"]), "one rank on each host"),
    habit(&["npersocket"], "N", OpenMpi, Means(&["--map-by", "ppr:{}:socket"]), "ranks on each socket, bound to it"),
    habit(&["ppr"], "N:RESOURCE", OpenMpi, Means(&["--map-by", "ppr:{}"]), "ranks on each host, socket, numa or core"),
    habit(&["configfile"], "FILE", Both, Programs, "programs from a file, one per line with its options"),
    habit(&["app"], "FILE", OpenMpi, Programs, "programs from a file, one per line with its options"),
    // Hosts.
    habit(&["host"], "HOSTS", Both, Is("--host"), "hosts, filled in turn with one rank each, or `HOST:N`"),
    habit(&["H"], "HOSTS", OpenMpi, Is("--host"), "the same"),
    habit(&["hosts", "hostlist", "machine", "machines", "machinelist"], "HOSTS", Mpich, Is("--host"), "hosts, filled in turn with one rank each, or `HOST:N`"),
    habit(&["hostfile", "machinefile"], "FILE", Both, Is("--hostfile"), "hosts from a file: `HOST`, `HOST:N`, `HOST slots=N max_slots=M`"),
    habit(&["f"], "FILE", Mpich, Is("--hostfile"), "the same"),
    habit(&["default-hostfile"], "FILE", OpenMpi, Is("--hostfile"), "the same"),
    habit(&["launcher-exec", "bootstrap-exec"], "PROGRAM", Mpich, Is("--rsh"), "program that reaches other hosts"),
    habit(&["launcher", "bootstrap"], "NAME", Mpich, Ignored, "would have selected how hosts are reached; here it is ssh, or `--rsh` or `--via serve`"),
    // Placement and binding.
    habit(&["map-by", "mapby"], "ORDER", Both, Is("--map-by"), "`slot`, `node`, `socket`, `numa`, `core`, `hwthread`, `ppr:N:RESOURCE`; `:PE=N` cores for each rank, `:OVERSUBSCRIBE`"),
    habit(&["bynode"], "", OpenMpi, Means(&["--map-by", "node"]), "one rank on each host in turn"),
    habit(&["byslot"], "", OpenMpi, Means(&["--map-by", "slot"]), "host after host"),
    habit(&["bycore"], "", OpenMpi, Means(&["--map-by", "core"]), "core after core, bound to it"),
    habit(&["bysocket"], "", OpenMpi, Means(&["--map-by", "socket"]), "one rank on each socket in turn, bound to it"),
    habit(&["rr"], "", Mpich, Means(&["--map-by", "node"]), "one rank on each host in turn"),
    habit(&["rank-by", "rankby"], "ORDER", OpenMpi, RankBy, "numbers by `slot` or by `node`; within a host the order is that of `--map-by`"),
    habit(&["rankfile", "rf"], "FILE", OpenMpi, Is("--rankfile"), "host and cores of each rank: `rank 0=node1 slot=0-1`"),
    habit(&["bind-to", "bindto"], "RESOURCE", Both, Is("--bind"), "`core`, `socket`, `numa`, `hwthread`, each with `:N`, or `none`; by default a rank has its share of the cores"),
    habit(&["binding"], "RESOURCE", Mpich, Is("--bind"), "the same"),
    habit(&["bind-to-core"], "", OpenMpi, Means(&["--bind", "core"]), "one core for each rank"),
    habit(&["bind-to-socket"], "", OpenMpi, Means(&["--bind", "socket"]), "one socket for each rank"),
    habit(&["bind-to-none"], "", OpenMpi, Means(&["--bind", "none"]), "no binding"),
    habit(&["cpus-per-proc", "cpus-per-rank"], "N", OpenMpi, Means(&["--bind", "core:{}"]), "N cores for each rank"),
    habit(&["report-bindings"], "", OpenMpi, Is("--report-bindings"), "a line for each rank about what it is bound to"),
    habit(&["oversubscribe"], "", OpenMpi, Is("--oversubscribe"), "no warning if there are more ranks than cores"),
    habit(&["nooversubscribe"], "", OpenMpi, Ignored, "would have refused more ranks than slots; `max_slots` in a host file does"),
    habit(&["nolocal"], "", OpenMpi, Ignored, "would have started no rank on this host; leave it out of the list of hosts"),
    habit(&["skip-launch-node"], "", Mpich, Ignored, "would have started no rank on this host; leave it out of the list of hosts"),
    habit(&["cpu-set", "cpu-list"], "LIST", OpenMpi, Ignored, "would have restricted ranks to these processors; `taskset -c LIST nicety mpirun` does"),
    habit(&["use-hwthread-cpus"], "", OpenMpi, Ignored, "would have counted hardware threads as cores; `--bind hwthread` binds to them"),
    habit(&["membind"], "POLICY", Mpich, Ignored, "would have bound memory; start the program by `numactl`"),
    habit(&["order-nodes"], "ORDER", Mpich, Ignored, "would have sorted hosts by their cores; here their order is that of the list"),
    habit(&["rankmap"], "MAP", Mpich, Ignored, "would have placed each rank; `--rankfile` does"),
    habit(&["gpus-per-proc", "g", "gpu-subdevs-per-proc"], "N", Mpich, Ignored, "would have assigned GPUs to ranks; set CUDA_VISIBLE_DEVICES in a script from MPI_LOCALRANKID"),
    // Environment.
    habit(&["x"], "NAME[=VALUE]", OpenMpi, Is("-x"), "a variable of the ranks of this program"),
    habit(&["env"], "NAME VALUE", Mpich, Variable("-x"), "a variable of the ranks of this program"),
    habit(&["genv"], "NAME VALUE", Mpich, Variable("--genv"), "a variable of all ranks"),
    habit(&["envlist"], "NAMES", Mpich, Variables("-x"), "passes variables to the ranks of this program on other hosts"),
    habit(&["genvlist"], "NAMES", Mpich, Variables("--genv"), "passes variables to all ranks on other hosts"),
    habit(&["genvall", "envall"], "", Mpich, Already, "ranks on this host get all variables; those on others need `-x`"),
    habit(&["genvnone", "envnone"], "", Mpich, Ignored, "would have kept the environment from ranks; start the program by `env -i`"),
    habit(&["wdir", "wd"], "DIR", Both, Is("--wdir"), "working directory of the ranks of this program"),
    habit(&["path"], "DIR", Both, Path, "searches the program in this folder first"),
    habit(&["iface"], "NETWORK", Mpich, Network, "network between hosts, such as `10.0.0.0/8`; not the name of an interface"),
    // Input and output.
    habit(&["stdin"], "RANK", OpenMpi, Is("--stdin"), "rank that reads standard input, `all` or `none`; rank 0 by default"),
    habit(&["l", "prepend-rank"], "", Mpich, Is("--tag"), "lines begin with the rank: `[2] text`"),
    habit(&["tag-output"], "", OpenMpi, Is("--tag"), "lines begin with the rank: `[2] text`"),
    habit(&["prepend-pattern"], "PATTERN", Mpich, Is("--prepend-pattern"), "lines begin with this; `%r` rank, `%h` host, `%t` seconds"),
    habit(&["timestamp-output"], "", OpenMpi, Means(&["--prepend-pattern", "%t "]), "lines begin with the seconds since 1970"),
    habit(&["output-filename"], "NAME", OpenMpi, Is("--output-filename"), "also writes the output of each rank to `NAME.RANK`; only there with `NAME:nocopy`"),
    habit(&["outfile-pattern", "outfile"], "PATTERN", Mpich, Is("--outfile-pattern"), "standard output goes to files, such as `out.%r`"),
    habit(&["errfile-pattern", "errfile"], "PATTERN", Mpich, Is("--errfile-pattern"), "standard error goes to files"),
    habit(&["merge-stderr-to-stdout"], "", OpenMpi, Is("--merge-stderr-to-stdout"), "standard error of ranks goes to standard output"),
    habit(&["output"], "LIST", OpenMpi, OutputList, "`tag`, `timestamp`, `merge-stderr-to-stdout`, `file=NAME`, as those options"),
    habit(&["ordered-output"], "", Mpich, Already, "lines of different ranks are not mixed"),
    habit(&["stream-buffering"], "N", OpenMpi, Ignored, "would have set the buffers of the ranks' streams; start the program by `stdbuf`"),
    habit(&["xml"], "", OpenMpi, Ignored, "would have printed XML; `--tag` names the rank of each line"),
    habit(&["xml-file"], "FILE", OpenMpi, Ignored, "would have written XML; `--output-filename` writes files"),
    habit(&["xterm"], "RANKS", OpenMpi, Ignored, "would have opened windows; start `xterm -e PROGRAM` as the program"),
    habit(&["output-from"], "RANK", Mpich, Ignored, "would have shown the output of one rank; `--outfile-pattern` separates ranks"),
    // The run of a job.
    habit(&["timeout"], "SECONDS", OpenMpi, Is("--timeout"), "ends all ranks after this time, with status 124; also `MPIEXEC_TIMEOUT`"),
    habit(&["get-stack-traces"], "", OpenMpi, Ignored, "would have printed stacks at the timeout; attach `gdb -p PID`"),
    habit(&["report-state-on-timeout"], "", OpenMpi, Already, "a line says how many ranks still run"),
    habit(&["do-not-launch"], "", OpenMpi, Is("--dry-run"), "prints what would be started"),
    habit(&["display-map", "display-devel-map", "display-diffable-map", "display-allocation", "display-devel-allocation", "display-topo"], "", OpenMpi, Ignored, "would have printed where ranks run; `--dry-run` does, `--report-bindings` names processors"),
    habit(&["display"], "LIST", OpenMpi, Ignored, "would have printed where ranks run; `--dry-run` does, `--report-bindings` names processors"),
    habit(&["allow-run-as-root"], "", OpenMpi, Already, "root needs no permission"),
    habit(&["disable-auto-cleanup"], "", Mpich, Ignored, "would have left ranks running when one fails; here all end"),
    habit(&["enable-auto-cleanup"], "", Mpich, Already, "all ranks end when one fails"),
    habit(&["print-all-exitcodes"], "", Mpich, Ignored, "would have printed the status of every rank; here a line names the first that failed"),
    habit(&["enable-recovery", "continuous"], "", OpenMpi, Ignored, "would have kept ranks running when one fails; here all end"),
    habit(&["disable-recovery"], "", OpenMpi, Already, "all ranks end when one fails"),
    habit(&["max-restarts"], "N", OpenMpi, Ignored, "would have started failed ranks again; here all end"),
    habit(&["report-child-jobs-separately"], "", OpenMpi, Ignored, "would have returned the status of the first job only; here that of the first failure is returned"),
    habit(&["forward-signals"], "LIST", OpenMpi, Ignored, "would have selected signals for ranks; here they get INT, TERM, HUP, USR1 and USR2"),
    habit(&["usize"], "N", Mpich, Ignored, "would have set MPI_UNIVERSE_SIZE; here no number is set"),
    habit(&["quiet", "q"], "", OpenMpi, Already, "mpirun prints only what went wrong"),
    habit(&["verbose", "v", "debug"], "", Both, Ignored, "would have printed what the launcher does; `--dry-run` prints the plan"),
    habit(&["debug-devel", "d", "debug-daemons", "debug-daemons-file", "leave-session-attached", "show-progress", "output-proctable"], "", OpenMpi, Ignored, "would have printed what the launcher does; `--dry-run` prints the plan"),
    habit(&["tv"], "", OpenMpi, Ignored, "would have started a debugger; start `gdb` as the program, or attach it to a rank"),
    habit(&["debugger"], "NAME", OpenMpi, Ignored, "would have started a debugger; start `gdb` as the program, or attach it to a rank"),
    habit(&["report-pid", "report-uri"], "FILE", OpenMpi, Ignored, "would have written where the launcher is; in a shell, `$!` is its process id"),
    habit(&["version", "V", "info"], "", Both, Version, "prints the version"),
    habit(&["help"], "", Both, Is("--help"), "prints help"),
    // Parameters of the libraries.
    habit(&["mca", "gmca", "omca", "prtemca", "pmixmca", "gpmixmca"], "KEY VALUE", OpenMpi, Parameter, "a parameter of Open MPI, by the table below"),
    habit(&["am", "tune"], "FILES", OpenMpi, Ignored, "would have read parameters of Open MPI from files"),
    habit(&["prefix", "app-prefix"], "DIR", OpenMpi, Ignored, "would have named the folder of Open MPI on other hosts; here they need this program at the same path"),
    habit(&["noprefix"], "", OpenMpi, Already, "no path is set on other hosts"),
    habit(&["personality"], "NAME", OpenMpi, Ignored, "would have selected a programming model of Open MPI"),
    habit(&["preload-binary", "s"], "", OpenMpi, Ignored, "would have copied the program to other hosts; copy it first"),
    habit(&["preload-files"], "FILES", OpenMpi, Ignored, "would have copied files to other hosts; copy them first"),
    habit(&["launch-agent"], "COMMAND", OpenMpi, Ignored, "would have named the agent on other hosts; here it is this program"),
    habit(&["ompi-server"], "URI", OpenMpi, Ignored, "would have named a server of Open MPI for MPI_Publish_name"),
    habit(&["nameserver"], "HOST:PORT", Mpich, Ignored, "would have named a server for MPI_Publish_name"),
    habit(&["hnp", "dvm-uri"], "URI", OpenMpi, Ignored, "would have used a running launcher of Open MPI; here mpirun starts ranks itself"),
    habit(&["novm", "set-cwd-to-session-dir", "do-not-resolve", "index-argv-by-rank", "use-regexp", "hetero-nodes"], "", OpenMpi, Ignored, "would have set an internal of Open MPI's launcher"),
    habit(&["memory-alloc-kinds"], "KINDS", Both, Ignored, "would have asked for kinds of memory; set them in the info object of MPI_Session_init"),
    habit(&["rmk", "topolib", "demux"], "NAME", Mpich, Ignored, "would have selected a part of Hydra"),
    habit(&["localhost"], "NAME", Mpich, Ignored, "would have named this host; here it is the name of uname(2)"),
    habit(&["enable-x", "disable-x"], "", Mpich, Ignored, "would have switched the forwarding of X11; use `--rsh 'ssh -X'`"),
    habit(&["enable-hostname-propagation", "disable-hostname-propagation", "hybrid-hosts", "pmi-port"], "", Mpich, Ignored, "would have set an internal of Hydra"),
    habit(&["soft"], "SET", Both, Ignored, "would have allowed other numbers of ranks; here exactly `-n` are started"),
    habit(&["arch"], "NAME", Both, Ignored, "would have selected hosts by their processor; list them"),
    habit(&["file"], "FILE", Both, Ignored, "would have read what a launcher needs"),
    habit(&["initial-errhandler"], "NAME", Both, Ignored, "would have set the first error handler; call MPI_Comm_set_errhandler"),
];

/// Parameters of Open MPI, for `--mca` and similar options.
#[rustfmt::skip]
pub(crate) const MCA: &[Key] = &[
    key("plm_rsh_agent", Is("--rsh"), "command that reaches other hosts"),
    key("btl_tcp_if_include", Network, "network between hosts, if it is one such as `10.0.0.0/8`"),
    key("oob_tcp_if_include", Network, "the same"),
    key("hwloc_base_binding_policy", Is("--bind"), "as `--bind-to`"),
    key("rmaps_base_mapping_policy", Is("--map-by"), "as `--map-by`"),
    key("rmaps_default_mapping_policy", Is("--map-by"), "as `--map-by`"),
    key("rmaps_base_ranking_policy", RankBy, "as `--rank-by`"),
    key("rmaps_base_oversubscribe", Switch(&["--oversubscribe"]), "as `--oversubscribe`"),
    key("orte_tag_output", Switch(&["--tag"]), "as `--tag-output`"),
    key("hwloc_base_report_bindings", Switch(&["--report-bindings"]), "as `--report-bindings`"),
    key("mpi_yield_when_idle", Already, "waiting ranks give up the core if ranks outnumber cores"),
    key("orte_base_help_aggregate", Already, "there are no such messages"),
    key("mpi_warn_on_fork", Already, "there is no such warning"),
    key("btl_base_warn_component_unused", Already, "there is no such warning"),
    key("btl_openib_warn_*", Already, "there is no such warning"),
    key("opal_warn_on_missing_libcuda", Already, "there is no such warning"),
    key("mpi_show_*", Ignored, "would have printed settings of Open MPI"),
    key("btl", Ignored, "would have selected transports; `--device shm`, `iwarp` or `shm+iwarp` does"),
    key("btl_*", Ignored, "would have tuned a transport of Open MPI; `--device` selects ours"),
    key("pml*", Ignored, "would have selected or tuned a transport of Open MPI; `--device` selects ours"),
    key("mtl*", Ignored, "would have selected or tuned a transport of Open MPI; `--device` selects ours"),
    key("coll*", Ignored, "would have tuned collectives of Open MPI; NICETY_ALGORITHMS selects ours"),
    key("osc*", Ignored, "would have selected or tuned windows of Open MPI"),
    key("io*", Ignored, "would have selected or tuned MPI-IO of Open MPI"),
    key("mpi_*", Ignored, "would have set a parameter of Open MPI's library"),
    key("opal_*", Ignored, "would have set a parameter of Open MPI's library"),
    key("orte_*", Ignored, "would have set a parameter of Open MPI's launcher"),
    key("prte_*", Ignored, "would have set a parameter of Open MPI's launcher"),
    key("plm*", Ignored, "would have set a parameter of Open MPI's launcher"),
    key("rmaps*", Ignored, "would have set a parameter of Open MPI's launcher"),
    key("oob*", Ignored, "would have set a parameter of Open MPI's launcher"),
    key("ras*", Ignored, "would have set a parameter of Open MPI's launcher"),
];

/// Variables of Intel MPI that `-genv`, `-env` and `-x` set. They are passed to the ranks as well.
#[rustfmt::skip]
pub(crate) const INTEL: &[Key] = &[
    key("I_MPI_PIN", SwitchOff(&["--bind", "none"]), "`0`, `off` or `no`: as `--bind-to none`"),
    key("I_MPI_PERHOST", Is("--per-host"), "as `-ppn`"),
    key("I_MPI_PIN_*", Ignored, "would have bound ranks; `--bind` and `--map-by` do"),
    key("I_MPI_FABRICS", Ignored, "would have selected transports; `--device shm`, `iwarp` or `shm+iwarp` does"),
    key("I_MPI_OFI_*", Ignored, "would have selected or tuned a transport; `--device` selects ours"),
    key("I_MPI_ADJUST_*", Ignored, "would have selected algorithms of collectives; NICETY_ALGORITHMS selects ours"),
    key("I_MPI_DEBUG*", Ignored, "would have printed what Intel MPI does; `--profile` prints calls and times"),
    key("I_MPI_HYDRA_*", Ignored, "would have set a parameter of Intel's launcher"),
];

/// The option of this name, without its dashes.
pub(crate) fn find(name: &str) -> Option<&'static Habit> {
    HABITS.iter().find(|habit| habit.names.contains(&name))
}

/// The names of an option as they are written, the first with its value.
pub(crate) fn written(habit: &Habit) -> Vec<String> {
    let dashes = |name: &str| if name.len() == 1 || habit.origin == Origin::Mpich { "-" } else { "--" };
    let names = habit.names.iter().map(|name| format!("{}{name}", dashes(name)));
    let value = if habit.value.is_empty() { String::new() } else { format!(" {}", habit.value) };
    names.enumerate().map(|(at, name)| if at == 0 { name + &value } else { name }).collect()
}

/// The rows of a table in the book.
#[cfg(test)]
pub(crate) fn book_options(origin: Origin) -> Vec<String> {
    let of_launcher = HABITS.iter().filter(|habit| habit.origin == origin || habit.origin == Both);
    let names =
        |habit: &Habit| written(habit).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    of_launcher.map(|habit| book_row(&names(habit), habit.does, habit.text)).collect()
}

/// The same for keys.
#[cfg(test)]
pub(crate) fn book_keys(keys: &[Key]) -> Vec<String> {
    keys.iter().map(|key| book_row(&format!("`{}`", key.name), key.does, key.text)).collect()
}

#[cfg(test)]
fn book_row(names: &str, does: Does, text: &str) -> String {
    let effect = match does {
        Ignored => "ignored: ",
        Already => "nothing: ",
        _ => "",
    };
    format!("| {names} | {effect}{text} |")
}
