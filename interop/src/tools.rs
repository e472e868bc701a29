//! The third-party programs that are needed, and where they come from.

use xtask::packages::{Needed, exists, is_root, provide};

/// Each program that the guest needs, with the Debian package that contains it.
const FOR_GUEST: &Needed = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("gcc", "gcc"),
    ("make", "make"),
    ("strip", "binutils"),
    ("xz", "xz-utils"),
    ("tshark", "tshark"),
    ("dumpcap", "wireshark-common"),
    // The kernel's build needs it.
    ("/usr/lib/x86_64-linux-gnu/libelf.so.1", "libelf1"),
    ("/usr/include/stdio.h", "libc6-dev"),
];
/// Programs built against DAT.
const FOR_DAT: &Needed = &[("dtest", "dapl2-utils"), ("dapltest", "dapl2-utils"), ("stdbuf", "coreutils")];
/// Programs built for libibverbs and librdmacm.
const FOR_VERBS: &Needed = &[
    ("ibv_rc_pingpong", "ibverbs-utils"),
    ("rping", "rdmacm-utils"),
    ("ib_write_lat", "perftest"),
    ("fi_pingpong", "libfabric-bin"),
    ("ucx_perftest", "ucx-utils"),
    ("iperf3", "iperf3"),
    ("nc.openbsd", "netcat-openbsd"),
    ("socat", "socat"),
    ("/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so", "librdmacm1"),
    ("qperf", "qperf"),
    ("fio", "fio"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mpirun.openmpi", "openmpi-bin"),
    ("NPopenmpi", "netpipe-openmpi"),
];
/// Needed to install MPICH and Open MPI, and to build programs against them.
const FOR_PYTHON: &Needed = &[("python3", "python3"), ("gcc", "gcc"), ("/usr/include/stdio.h", "libc6-dev")];

/// Slurm's daemons, and its job launcher.
const FOR_SLURM: &Needed = &[("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client")];

/// Makes a guest possible; returns the reason if that fails. Missing packages are installed where that is allowed.
pub(crate) fn provide_guest() -> Result<(), String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("the guest is made for Linux on x86-64".into());
    }
    if !exists("apt-get") {
        return Err("the guest is made of Debian's packages, and there is no apt-get here".into());
    }
    // An existing image needs none of this; but package lists get old, and the versions in them can then not be
    // fetched.
    provide(FOR_GUEST).map(drop)
}

/// Provides Debian's programs for uDAPL; returns the reason if that fails.
pub(crate) fn provide_dat() -> Result<(), String> {
    provide(FOR_DAT).map(drop)
}

/// Provides Debian's programs for libibverbs and librdmacm; returns the reason if that fails.
pub(crate) fn provide_verbs() -> Result<(), String> {
    provide(FOR_VERBS).map(drop)
}

/// Provides MPICH and Open MPI; returns the reason if that fails.
pub(crate) fn provide_python() -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Err("their packages for Python are taken for Linux".into());
    }
    provide(FOR_PYTHON).map(drop)
}

/// Provides Slurm; returns the reason if that fails.
pub(crate) fn provide_slurm() -> Result<(), String> {
    if !is_root() {
        return Err("its daemons are started as root".into());
    }
    provide(FOR_SLURM).map(drop)
}
