//! Two network namespaces, joined by a pair of virtual Ethernet devices.
//!
//! They have no names: the kernel removes them with the last thread, socket or descriptor that holds them,
//! however the process ends. So nothing needs to be cleaned up.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::Once;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A network namespace.
pub(crate) struct Space {
    file: OwnedFd,
    /// Its address.
    pub(crate) ip: IpAddr,
    /// Its network device.
    pub(crate) link: &'static str,
}

/// Two connected namespaces.
pub(crate) struct Spaces {
    /// The first.
    pub(crate) a: Space,
    /// The other.
    pub(crate) b: Space,
}

impl Space {
    fn new(last: u8, link: &'static str) -> Result<Self, String> {
        let make = || {
            // SAFETY: it changes the network of this thread only, which ends here; no descriptor is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(|e| format!("unshare(CLONE_NEWNET): {e}"))?;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty()).map_err(|e| e.to_string())
        };
        let file = std::thread::scope(|scope| scope.spawn(make).join().expect("no panic"))?;
        Ok(Self { file, ip: IpAddr::from(Ipv4Addr::new(10, 77, 0, last)), link })
    }

    /// A namespace without a link, in which abstract socket names are its own.
    pub(crate) fn alone() -> Result<Self, String> {
        Self::new(1, "")
    }

    /// Runs `body` in a thread of this namespace. Threads that it starts are in the namespace as well.
    pub(crate) fn within<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        let run = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("a namespace");
            body()
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
    }

    /// Runs `ip` in the namespace.
    pub(crate) fn ip(&self, line: &str) -> Result<(), String> {
        self.tool("ip", line)
    }

    /// Runs a program of iproute2 in the namespace.
    pub(crate) fn tool(&self, program: &str, line: &str) -> Result<(), String> {
        let run = || Command::new(program).args(line.split(' ')).output();
        let output = self.within(run).map_err(|e| format!("cannot run {program} (Debian: iproute2): {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("{program} {line}: {said}")) }
    }
}

impl Spaces {
    /// Two namespaces with a link of this MTU between them.
    pub(crate) fn new(mtu: u32) -> Result<Self, String> {
        let (a, b) = (Space::new(1, "nic-a")?, Space::new(2, "nic-b")?);
        let other = format!("/proc/{}/fd/{}", std::process::id(), b.file.as_raw_fd());
        a.ip(&format!("link add nic-a mtu {mtu} type veth peer name nic-b mtu {mtu} netns {other}"))?;
        for side in [&a, &b] {
            side.ip("link set lo up")?;
            side.ip(&format!("address add {}/24 dev {}", side.ip, side.link))?;
            side.ip(&format!("link set {} up", side.link))?;
        }
        Ok(Self { a, b })
    }

    /// Adds a second link between the namespaces. It has a separate network: see [`Spaces::rails`].
    pub(crate) fn join_again(&self, mtu: u32) -> Result<(), String> {
        let other = format!("/proc/{}/fd/{}", std::process::id(), self.b.file.as_raw_fd());
        self.a.ip(&format!("link add nic-c mtu {mtu} type veth peer name nic-d mtu {mtu} netns {other}"))?;
        for (space, side) in [(&self.a, 0), (&self.b, 1)] {
            let (link, ip) = self.rails()[1][side];
            space.ip(&format!("address add {ip}/24 dev {link}"))?;
            space.ip(&format!("link set {link} up"))?;
        }
        Ok(())
    }

    /// The ends of both links, as device and address, first in `a`, then in `b`.
    pub(crate) fn rails(&self) -> [[(&'static str, IpAddr); 2]; 2] {
        let second = |link, last| (link, IpAddr::from(Ipv4Addr::new(10, 78, 0, last)));
        [[(self.a.link, self.a.ip), (self.b.link, self.b.ip)], [second("nic-c", 1), second("nic-d", 2)]]
    }

    /// Creates the namespaces, or returns `None` where that is not permitted and prints so once; in CI it
    /// must be permitted.
    pub(crate) fn try_new(mtu: u32) -> Option<Self> {
        static SAID: Once = Once::new();
        match Self::new(mtu) {
            Ok(spaces) => Some(spaces),
            Err(why) => {
                assert!(std::env::var_os("CI").is_none(), "no network namespaces in CI: {why}");
                SAID.call_once(|| {
                    eprintln!(
                        "\n*** SKIPPED: everything between network namespaces, which need root: {why}\n"
                    );
                });
                None
            }
        }
    }
}
