//! The hosts and their links. Every host has a numbered link of its own to the router.
//!
//! | host | IPv4 | IPv6 |
//! |---|---|---|
//! | client n | 198.51.100.(4n+2)/30 | 2001:db8:c:n::2/64 |
//! | director n | 10.1.n.2/30 | 2001:db8:d:n::2/64 |
//! | backend n | 10.2.n.2/30 | 2001:db8:b:n::2/64 |
//! | router | the `.1` of each link | the `::1` |
//! | VIP | 203.0.113.10 | 2001:db8::10 |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use common::bind::Prefix;

use super::netns::Namespace;
use super::peer::Passing;
use crate::director::leave_to_director;
use crate::host::sys::interface::Interface;

/// The service's IPv4 address.
pub const VIP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// The service's IPv6 address.
pub const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
/// The service's port.
pub const PORT: u16 = 80;
/// The MTU of clients' links, in octets, as on the internet.
pub const CLIENT_MTU: u32 = 1_500;

/// The numbers of hosts of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Hosts that connect to the VIP.
    pub clients: u8,
    /// Hosts that run `dataplane run`.
    pub directors: u8,
    /// Hosts with a server.
    pub backends: u8,
    /// Whether directors run on the first backends instead of on hosts of their own.
    pub shared: bool,
    /// MTU of the links to directors and backends, in octets. Clients' packets grow by up to 60 octets there.
    pub underlay_mtu: u32,
}

/// The network without any program.
#[derive(Debug)]
pub struct Network {
    /// Forwards packets, and distributes those to the VIP over directors.
    pub router: Namespace,
    /// Hosts that connect to the VIP.
    pub clients: Vec<Namespace>,
    /// Hosts that run `dataplane run` and nothing else.
    pub directors: Vec<Namespace>,
    /// Hosts with a server; they have the VIP on `lo`.
    pub backends: Vec<Namespace>,
}

/// The kind of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Director,
    Backend,
}

impl Role {
    const fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Director => "director",
            Self::Backend => "backend",
        }
    }

    /// The router's end of the cable to a host.
    fn port(self, number: u8) -> String {
        format!("{}{number}", self.word())
    }

    fn v4(self, number: u8, host: u8) -> Ipv4Addr {
        match self {
            Self::Client => Ipv4Addr::new(198, 51, 100, 4 * number + host),
            Self::Director => Ipv4Addr::new(10, 1, number, host),
            Self::Backend => Ipv4Addr::new(10, 2, number, host),
        }
    }

    fn v6(self, number: u8, host: u8) -> Ipv6Addr {
        let net = match self {
            Self::Client => 0xc,
            Self::Director => 0xd,
            Self::Backend => 0xb,
        };
        Ipv6Addr::new(0x2001, 0xdb8, net, number.into(), 0, 0, 0, host.into())
    }
}

/// The address of a director.
pub fn director(number: u8) -> Ipv4Addr {
    Role::Director.v4(number, 2)
}

/// The IPv6 address of a director.
pub fn director_v6(number: u8) -> Ipv6Addr {
    Role::Director.v6(number, 2)
}

/// The address of a backend.
pub fn backend(number: u8) -> Ipv4Addr {
    Role::Backend.v4(number, 2)
}

/// The IPv6 address of a backend.
pub fn backend_v6(number: u8) -> Ipv6Addr {
    Role::Backend.v6(number, 2)
}

/// The service, by IPv4 or IPv6.
pub fn service(v4: bool) -> SocketAddr {
    let vip: IpAddr = if v4 { VIP.into() } else { VIP6.into() };
    SocketAddr::new(vip, PORT)
}

impl Network {
    /// Builds the network; all directors get a share of the flows.
    pub fn new(size: Size) -> anyhow::Result<Self> {
        let router = Namespace::new("router")?;
        for (key, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/fib_multipath_hash_policy", "1"),
            ("ipv6/fib_multipath_hash_policy", "1"),
            // Responses have the VIP as source and do not arrive on the interface that the VIP's route points
            // to.
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
        ] {
            router.sysctl(key, value)?;
        }
        let hosts = |role, count: u8, mtu| {
            (0..count).map(|number| host(&router, role, number, mtu)).collect::<anyhow::Result<Vec<_>>>()
        };
        let clients = hosts(Role::Client, size.clients, CLIENT_MTU)?;
        let own_hosts = if size.shared { 0 } else { size.directors };
        let directors = hosts(Role::Director, own_hosts, size.underlay_mtu)?;
        let backends = hosts(Role::Backend, size.backends, size.underlay_mtu)?;
        for backend in &backends {
            backend.ip(&format!("addr add {VIP}/32 dev lo\naddr add {VIP6}/128 dev lo nodad"))?;
            // The strictest setting in use.
            backend.sysctl("ipv4/conf/all/rp_filter", "1")?;
        }
        let network = Self { router, clients, directors, backends };
        network.spread_over(&(0..size.directors).collect::<Vec<_>>())?;
        Ok(network)
    }

    /// The host that a director runs on.
    pub fn director(&self, number: u8) -> &Namespace {
        let hosts = if self.director_role() == Role::Backend { &self.backends } else { &self.directors };
        &hosts[usize::from(number)]
    }

    fn director_role(&self) -> Role {
        if self.directors.is_empty() { Role::Backend } else { Role::Director }
    }

    /// Configures a backend that is also a director: its kernel leaves the VIPs' packets to the program.
    pub fn leave_to_director(&self, number: u8) -> anyhow::Result<()> {
        [VIP.into(), VIP6.into()]
            .map(Prefix::host)
            .into_iter()
            .try_for_each(|vip| self.director(number).shell(&leave_to_director(vip, "eth0")))
    }

    /// Makes the router receive frames of programs in the drivers of directors and backends, as long as the
    /// result lives.
    pub fn take_native(&self) -> anyhow::Result<Vec<Passing>> {
        let ports = |role: Role, hosts: &[Namespace]| (0..).take(hosts.len()).map(move |n| role.port(n));
        let directors = ports(Role::Director, &self.directors);
        let ports: Vec<_> = directors.chain(ports(Role::Backend, &self.backends)).collect();
        self.router.run(move || ports.iter().map(|port| Passing::on(Interface::named(port)?.index)).collect())
    }

    /// Makes the router send the VIP's packets to these directors, as if only they announced it.
    pub fn spread_over(&self, directors: &[u8]) -> anyhow::Result<()> {
        let hops = |via: &dyn Fn(u8) -> IpAddr| {
            directors.iter().map(|&n| format!(" nexthop via {}", via(n))).collect::<String>()
        };
        let role = self.director_role();
        let v4 = hops(&|n| role.v4(n, 2).into());
        let v6 = hops(&|n| role.v6(n, 2).into());
        self.router.ip(&format!("route replace {VIP}/32{v4}\nroute replace {VIP6}/128{v6}"))
    }
}

fn host(router: &Namespace, role: Role, number: u8, mtu: u32) -> anyhow::Result<Namespace> {
    let host = Namespace::new(&format!("{} {number}", role.word()))?;
    let port = role.port(number);
    for interface in ["all", "default"] {
        host.sysctl(&format!("ipv6/conf/{interface}/accept_dad"), "0")?;
    }
    router.connect(&port, &host, "eth0", mtu)?;
    let addresses =
        |end: u8| (format!("{}/30", role.v4(number, end)), format!("{}/64", role.v6(number, end)));
    let ((v4, v6), (our_v4, our_v6)) = (addresses(2), addresses(1));
    router.ip(&format!(
        "link set {port} up\naddr add {our_v4} dev {port}\naddr add {our_v6} dev {port} nodad"
    ))?;
    let (gateway, gateway_v6) = (role.v4(number, 1), role.v6(number, 1));
    host.ip(&format!(
        "link set eth0 up\naddr add {v4} dev eth0\naddr add {v6} dev eth0 nodad\n\
         route add default via {gateway}\nroute add default via {gateway_v6}"
    ))?;
    host.wait_for("eth0")?;
    router.wait_for(&port)?;
    Ok(host)
}
