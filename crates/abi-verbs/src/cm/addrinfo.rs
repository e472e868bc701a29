//! Name resolution for `rdma_getaddrinfo(3)`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use ffi::{CBuffer, In, Out, SockAddr, Text, log};
use libc::{EAI_BADFLAGS, EAI_MEMORY, EAI_NONAME, EAI_SERVICE, sockaddr_in, sockaddr_in6, socklen_t};
use rdma_abi::cma::rdma_addrinfo;
use rdma_abi::numbers as n;

use crate::answer::Answer;
use crate::errno::Errno;
use crate::slab::{Handle, Object, Slab};

/// The addresses of one result, which the program holds until it frees it.
pub(crate) struct AddrInfo {
    _addresses: [Option<CBuffer>; 2],
}

impl Object for AddrInfo {
    type C = rdma_addrinfo;
    const NAME: &'static str = "rdma_addrinfo";
    const PLACES: usize = 1 << 14;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<AddrInfo> = Slab::new();
        &SLAB
    }
}

/// Returns 0, or an error number of `gai_strerror(3)`.
pub(crate) fn rdma_getaddrinfo(
    node: Text,
    service: Text,
    hints: In<rdma_addrinfo>,
    res: Out<*mut rdma_addrinfo>,
) -> i32 {
    let find = || {
        let hints = hints.get();
        let (node, service) = (node.get(), service.get());
        if !res.is_some() || node.is_none() && service.is_none() && hints.is_none() {
            Errno::INVAL.store();
            return Err(EAI_BADFLAGS);
        }
        let hints = AddrHints::parse(hints);
        let port = service.map_or(Ok(0), |text| text.trim().parse::<u16>()).map_err(|_| EAI_SERVICE)?;
        let named = match node {
            Some(node) => Some(hints.resolve(&node, port)?),
            None if port != 0 => Some(SocketAddr::new(hints.local_address(), port)),
            None => None,
        };
        res.set(hints.lend(named).map_err(|_| EAI_MEMORY)?.cast());
        Ok(())
    };
    let wrong = find().err().unwrap_or(0);
    if wrong != 0 {
        report(wrong, node, service);
    }
    wrong
}

/// Reports a failure to the log of failed calls.
#[cold]
fn report(wrong: i32, node: Text, service: Text) {
    if !log::reports_errors() {
        return;
    }
    let (node, service) = (node.get().unwrap_or_default(), service.get().unwrap_or_default());
    let reason = match wrong {
        EAI_BADFLAGS => "res is NULL, or node, service and hints all are; pass the address of a result, and what to look for".into(),
        EAI_SERVICE => format!("service is '{service}'; pass a port number, as names of services are not looked up"),
        EAI_NONAME => format!("node '{node}' has no address of the wanted family; check its spelling, or pass an address"),
        _ => "too many results exist; free them by rdma_freeaddrinfo".into(),
    };
    log::failure("rdma_getaddrinfo", &format!("{reason} (error {wrong} of gai_strerror)"));
}

/// The hints of a program.
struct AddrHints {
    flags: u32,
    family: i32,
    qp_type: i32,
    port_space: i32,
    src: Option<SocketAddr>,
    dst: Option<SocketAddr>,
}

impl AddrHints {
    fn parse(hints: Option<rdma_addrinfo>) -> Self {
        let connected = (n::IBV_QPT_RC as i32, n::RDMA_PS_TCP as i32);
        let datagrams = (n::IBV_QPT_UD as i32, n::RDMA_PS_UDP as i32);
        let Some(hints) = hints else {
            let (qp_type, port_space) = connected;
            return Self { flags: 0, family: 0, qp_type, port_space, src: None, dst: None };
        };
        // Missing hints follow from the given ones.
        let is_datagram = hints.ai_qp_type == datagrams.0 || hints.ai_port_space == datagrams.1;
        let (qp_type, port_space) = if is_datagram { datagrams } else { connected };
        let given = |value: i32, otherwise| if value == 0 { otherwise } else { value };
        let [src, dst] = addresses(&hints).map(|addr| addr.get().ok());
        Self {
            flags: hints.ai_flags.cast_unsigned(),
            family: hints.ai_family,
            qp_type: given(hints.ai_qp_type, qp_type),
            port_space: given(hints.ai_port_space, port_space),
            src,
            dst,
        }
    }

    fn is_passive(&self) -> bool {
        self.flags & n::RAI_PASSIVE != 0
    }

    /// An address of this host: the wildcard for a listener, loopback otherwise.
    fn local_address(&self) -> IpAddr {
        let is_v6 = self.family == libc::AF_INET6;
        match (self.is_passive(), is_v6) {
            (true, false) => Ipv4Addr::UNSPECIFIED.into(),
            (true, true) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            (false, false) => Ipv4Addr::LOCALHOST.into(),
            (false, true) => std::net::Ipv6Addr::LOCALHOST.into(),
        }
    }

    fn resolve(&self, node: &str, port: u16) -> Result<SocketAddr, i32> {
        if let Ok(ip) = node.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, port));
        }
        if self.flags & n::RAI_NUMERICHOST != 0 {
            return Err(EAI_NONAME);
        }
        let is_wanted = |addr: &SocketAddr| match self.family {
            libc::AF_INET => addr.is_ipv4(),
            libc::AF_INET6 => addr.is_ipv6(),
            _ => true,
        };
        (node, port).to_socket_addrs().ok().and_then(|mut all| all.find(is_wanted)).ok_or(EAI_NONAME)
    }

    /// Stores the result for the program: the source address for a listener, the destination for a connecting side.
    fn lend(&self, named: Option<SocketAddr>) -> Answer<Handle<AddrInfo>> {
        let (src, dst) = match self.is_passive() {
            true => (named.or(self.src), self.dst),
            false => (self.src, named.or(self.dst)),
        };
        let lent = [src, dst].map(|addr| addr.map(CBuffer::address));
        let [src_addr, dst_addr] =
            lent.each_ref().map(|lent| lent.as_ref().map_or(std::ptr::null_mut(), CBuffer::as_ptr).cast());
        let family = if self.is_passive() { src } else { dst }.map_or(self.family, |addr| match addr {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        });
        let seen = rdma_addrinfo {
            ai_flags: self.flags.cast_signed(),
            ai_family: family,
            ai_qp_type: self.qp_type,
            ai_port_space: self.port_space,
            ai_src_len: length(src),
            ai_dst_len: length(dst),
            ai_src_addr: src_addr,
            ai_dst_addr: dst_addr,
            ai_src_canonname: std::ptr::null_mut(),
            ai_dst_canonname: std::ptr::null_mut(),
            ai_route_len: 0,
            ai_route: std::ptr::null_mut(),
            ai_connect_len: 0,
            ai_connect: std::ptr::null_mut(),
            ai_next: std::ptr::null_mut(),
        };
        AddrInfo::slab().insert(seen, AddrInfo { _addresses: lent })
    }
}

/// The source and destination addresses that a program passes, or NULL.
pub(crate) fn addresses(info: &rdma_addrinfo) -> [SockAddr; 2] {
    [(info.ai_src_addr, info.ai_src_len), (info.ai_dst_addr, info.ai_dst_len)].map(|(addr, len)| {
        let addr = if len == 0 { std::ptr::null() } else { addr.cast_const().cast() };
        // SAFETY: NULL, or an address of the size of its family, filled in by the program or returned from here. Test:
        // `both_ends_of_connections_in_c_meet` in tests/programs.rs.
        unsafe { SockAddr::new(addr) }
    })
}

fn length(addr: Option<SocketAddr>) -> socklen_t {
    let length = match addr {
        None => 0,
        Some(SocketAddr::V4(_)) => size_of::<sockaddr_in>(),
        Some(SocketAddr::V6(_)) => size_of::<sockaddr_in6>(),
    };
    length as socklen_t
}

pub(crate) fn rdma_freeaddrinfo(res: Out<rdma_addrinfo>) -> Answer {
    Handle::<AddrInfo>::from_addr(res.addr()).lookup()?.remove().map(drop)
}
