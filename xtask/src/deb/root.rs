//! Tests the package in a minimal Debian: a root folder, made once, in which it is installed, tried and removed.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use xtask::packages::is_root;
use xtask::workspace::run as run_command;

/// Packages in the root in addition to the essential ones: programs built against uDAPL, and viewers of pages and
/// completions.
const WITH: &str = "--include=dapl2-utils,ibverbs-utils,rdmacm-utils,man-db,bash-completion";
/// After this time a root is made anew, for Debian's updates.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The trial, as a script for the root's shell. Each step prints what works.
const TRIAL: &str = r#"
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root MANPAGER=cat
works() { echo "deb: works: $*"; }
cd /root
apt-get install -y -qq --no-install-recommends /nicety.deb </dev/null >/dev/null
works "installing, with what it depends on"
nicety --version | grep -q '^nicety [0-9]'
works "nicety --version"
nicety bench --quick --launches 1 --set budget=2 --plain --json run.json >screen 2>remarks
grep -q '^latency ' screen && test -s run.json && test -s nicety-report.html
works "nicety bench --quick on shm"
man nicety-bench | grep -q '^EXAMPLES' && whatis nicety | grep -q RDMA
works "man nicety-bench"
bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader nicety
    COMP_LINE="nicety explain lat" COMP_POINT=18; _nicety; test "${COMPREPLY[*]}" = latency'
works "completion in bash"
dtest_on() {
    "$@" dtest -P nicety >server 2>&1 &
    server=$!
    for try in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.5
        if "$@" dtest -P nicety -h 127.0.0.1 >client 2>&1; then wait $server; return; fi
    done
    kill $server; cat server client; return 1
}
dtest_on nicety run --dat --
works "nicety run --dat -- dtest, server and client"
dtest_on env DAT_OVERRIDE=/etc/nicety/dat.conf
works "dtest by /etc/nicety/dat.conf"
nicety run -- ibv_devices | grep -q nicety0
rping_on() {
    nicety run --device "$1" -- rping -s -a "$2" -C 5 >server 2>&1 &
    server=$!
    for try in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.5
        if timeout 20 nicety run --device "$1" -- rping -c -a "$2" -C 5 -v >client 2>&1; then break; fi
    done
    grep -q 'ping data: rdma-ping-4' client && wait $server
}
rping_on shm 127.0.0.1
works "nicety run -- ibv_devices, and rping, server and client"
rping_on iwarp@127.0.0.1 127.0.0.1
works "rping over iwarp"
sh -c 'eval "$(nicety run --print-env)" && ibv_devices' | grep -q nicety0
works "the line for a CI job (docs/guides/verbs.md)"
nicety mpicc --show -o ring ring.c | grep -q -- '-I/usr/include/nicety .*-L/usr/lib/nicety '
works "nicety mpicc, which finds mpi.h and the library"
test -e /usr/include/nicety/nicety_fault.h && test -e /usr/include/nicety/portals4.h && ldd /usr/lib/nicety/libportals.so.4 | grep -q libc && ! ldd /usr/lib/nicety/libportals.so.4 | grep -q 'not found'
works "portals4.h and its library, which loads"
/usr/lib/nicety/bin/mpicc --show ring.c | grep -q -- '-lmpi_abi'
works "the names of MPI's commands in /usr/lib/nicety/bin"
mkdir secrets
(umask 077; echo 0123456789abcdef0123456789abcdef >secrets/token)
# What the unit runs, as systemd does.
command=$(sed -n "s/^ExecStart=.bin.sh -c '\(.*\)'$/\1/p" /usr/lib/systemd/system/nicety-serve.service | sed 's/[$][$]/$/g')
CREDENTIALS_DIRECTORY=$PWD/secrets LISTEN=127.0.0.1 sh -c "$command" >served 2>&1 &
server=$!
for try in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.5
    if grep -q 'listening at' served; then break; fi
done
nicety bench latency --launches 1 --set budget=2 --plain --peer 127.0.0.1 --token-file secrets/token >screen 2>remarks ||
    { cat served remarks; exit 1; }
kill $server && ! wait $server
works "the command of nicety-serve.service, and a client with the same secret"
grep -q Memcheck /usr/share/nicety/nicety.supp
works "suppressions for valgrind"
test "$(nicety mpirun -n 2 sh -c 'echo $PMI_RANK' | sort | tr -d '\n')" = 01
works "nicety mpirun"
cp /usr/share/doc/nicety/copyright /usr/share/doc/nicety/third-party.gz .
apt-get purge -y -qq nicety </dev/null >/dev/null
! test -e /usr/bin/nicety && ! test -e /etc/nicety && ! test -e /usr/lib/nicety
works "removing, with nothing left"
"#;

/// Tries the package in a root made in `folder`. Where no root can be made, reports that prominently, and fails in CI.
pub(super) fn check(folder: &Path, package: &Path) -> Result<String> {
    let began = Instant::now();
    match base(folder) {
        Ok(base) => {
            trial(folder, &base, package)?;
            Ok(format!("deb: tried in a clean root, {:.1} s", began.elapsed().as_secs_f64()))
        }
        Err(why) if std::env::var_os("CI").is_some() => {
            Err(why.context("the package cannot be tried in a clean root, and must be in CI"))
        }
        Err(why) => Ok(format!("\n*** deb: NOT TRIED: no clean root can be made here: {why:#}\n")),
    }
}

/// The archive of a root with this machine's release of Debian; an earlier one if it is not too old.
fn base(folder: &Path) -> Result<PathBuf> {
    if !is_root() {
        bail!("only root can make one; try: sudo cargo xtask deb --try");
    }
    let suite = suite_of_debian()?;
    // Its name contains its packages, so that a change of the list makes another archive.
    let packages = WITH.trim_start_matches("--include=").replace(',', "+");
    let archive = folder.join(format!("{suite}+{packages}.tar"));
    let age = |path: &Path| SystemTime::now().duration_since(fs::metadata(path).ok()?.modified().ok()?).ok();
    if age(&archive).is_some_and(|age| age < AGE_MAX) {
        return Ok(archive);
    }
    println!("deb: making a root of {suite}");
    let new = folder.join("new.tar");
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", WITH, &suite]).arg(&new).stdin(Stdio::null());
    run_command(&mut make)?;
    fs::rename(&new, &archive)?;
    Ok(archive)
}

/// The name of this machine's release of Debian.
///
/// # Errors
/// If it is another system.
pub(crate) fn suite_of_debian() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").context("no /etc/os-release")?;
    suite(&release).context("/etc/os-release names no release of Debian")
}

/// The name of a release of Debian, as of `VERSION_CODENAME=bookworm`.
fn suite(release: &str) -> Option<String> {
    let value = |key: &str| release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    (value("ID")? == "debian").then(|| value("VERSION_CODENAME").map(str::to_owned))?
}

fn trial(folder: &Path, base: &Path, package: &Path) -> Result<()> {
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot empty {}", root.display()))?;
    }
    fs::create_dir_all(&root)?;
    run_command(Command::new("tar").arg("-xf").arg(base).arg("-C").arg(&root))?;
    fs::copy(package, root.join("nicety.deb"))?;
    fs::write(root.join("trial"), TRIAL)?;
    // It has its own namespaces: its mounts and processes end with it, and its ports do not conflict.
    let inside = "ip link set lo up; mount -t proc proc proc; mount --bind /sys sys; mount -t tmpfs tmpfs tmp; \
                  exec chroot . /bin/bash /trial";
    let mut shell = Command::new("unshare");
    shell
        .args(["--mount", "--pid", "--fork", "--kill-child", "--net", "sh", "-ec", inside])
        .current_dir(&root)
        // The host's environment, such as TMPDIR, is not passed on.
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let done = run_command(shell.stdin(Stdio::null()));
    fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    done.context("the package does not work in a clean root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_only_where_it_is_debians() {
        let debian = "PRETTY_NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(suite(debian).as_deref(), Some("bookworm"));
        assert_eq!(suite(&debian.replace("ID=debian", "ID=other")), None);
        assert_eq!(suite("ID=debian\n"), None);
    }
}
