//! Network interfaces: index, addresses, MTU (netdevice(7)); and the offloads that change the frames a
//! program receives (linux/ethtool.h).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{Zeroable, check, option};

/// The state of an Ethernet interface when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, as in `ip link`.
    pub name: String,
    /// Interface index. It stays the same when the interface is renamed.
    pub index: u32,
    /// MAC address.
    pub mac: [u8; 6],
    /// Length of the longest IP packet that the interface carries, in octets.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Up and connected: the interface can send frames.
    pub running: bool,
}

impl Interface {
    /// Looks up an interface by name. `InvalidInput` if it is not Ethernet.
    pub fn named(name: &str) -> io::Result<Self> {
        let socket = any_socket()?;
        let [family_0, family_1, mac @ .., _, _, _, _, _, _, _, _] =
            query(&socket, name, libc::SIOCGIFHWADDR)?;
        if u16::from_ne_bytes([family_0, family_1]) != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an Ethernet interface"));
        }
        Ok(Self { mac, ..Self::of_any_kind(&socket, name)? })
    }

    /// The first IPv4 address. `AddrNotAvailable` if the interface has none.
    pub fn v4(&self) -> io::Result<Ipv4Addr> {
        // `sockaddr_in`: u16 family · u16 port · u8 × 4 address.
        let [_, _, _, _, a, b, c, d, ..] = query(&any_socket()?, &self.name, libc::SIOCGIFADDR)?;
        Ok(Ipv4Addr::new(a, b, c, d))
    }

    fn of_any_kind(socket: &OwnedFd, name: &str) -> io::Result<Self> {
        let index = number(query(socket, name, libc::SIOCGIFINDEX)?)?;
        let mtu = number(query(socket, name, libc::SIOCGIFMTU)?)?;
        let [flags_0, flags_1, ..] = query(socket, name, libc::SIOCGIFFLAGS)?;
        let flags = i32::from(u16::from_ne_bytes([flags_0, flags_1]));
        Ok(Self {
            name: name.to_owned(),
            index,
            mac: [0; 6],
            mtu,
            up: flags & libc::IFF_UP != 0,
            running: flags & libc::IFF_RUNNING != 0,
        })
    }

    /// Waits until an interface is [`running`](Self::running). The kernel processes a link change at most
    /// once a second, and until then it drops every frame that is sent.
    pub fn wait_until_running(name: &str, patience: Duration) -> io::Result<()> {
        let start = Instant::now();
        while !Self::of_any_kind(&any_socket()?, name)?.running {
            if start.elapsed() > patience {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{name} does not come up")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// True if a look-up failed because there is no such interface, or because it is not Ethernet. Every
    /// other error says nothing about the interface.
    pub fn is_missing(error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::InvalidInput
            || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
    }

    /// Looks up an interface by index.
    pub fn indexed(index: u32) -> io::Result<Self> {
        Self::named(&rustix::net::netdevice::index_to_name(any_socket()?, index)?)
    }
}

/// An offload that merges frames or leaves their checksums to hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Receive: the kernel merges frames of a flow.
    Gro,
    /// Receive: the hardware merges frames of a flow.
    Lro,
    /// Send: the hardware computes checksums.
    TxChecksum,
    /// Send: the hardware splits TCP segments that are longer than the MTU.
    Tso,
    /// Send: the kernel splits such segments, as late as possible.
    Gso,
}

impl Offload {
    /// The name that ethtool(8) uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gro => "gro",
            Self::Lro => "lro",
            Self::TxChecksum => "tx",
            Self::Tso => "tso",
            Self::Gso => "gso",
        }
    }

    /// True if the offload is on.
    pub fn is_on(self, interface: &str) -> io::Result<bool> {
        let value = ethtool(interface, self.commands().0, 0)?;
        Ok(if self == Self::Lro { value & FLAG_LRO != 0 } else { value != 0 })
    }

    /// Switches the offload on or off. Needs CAP_NET_ADMIN.
    pub fn switch(self, interface: &str, on: bool) -> io::Result<()> {
        let value = if self == Self::Lro {
            // LRO is one bit of a word of flags. The other bits keep their values.
            let flags = ethtool(interface, self.commands().0, 0)?;
            if on { flags | FLAG_LRO } else { flags & !FLAG_LRO }
        } else {
            u32::from(on)
        };
        ethtool(interface, self.commands().1, value).map(drop)
    }

    /// The commands ETHTOOL_G… (get) and ETHTOOL_S… (set).
    fn commands(self) -> (u32, u32) {
        match self {
            Self::Gro => (0x2b, 0x2c),
            Self::Lro => (0x25, 0x26),
            Self::TxChecksum => (0x16, 0x17),
            Self::Tso => (0x1e, 0x1f),
            Self::Gso => (0x23, 0x24),
        }
    }
}

/// The name of an interface's driver, as in `ethtool -i`.
pub fn driver(interface: &str) -> io::Result<String> {
    const ETHTOOL_GDRVINFO: u32 = 0x3;
    let mut information = DriverInformation { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    let mut request = named(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut information).cast();
    ioctl(&any_socket()?, libc::SIOCETHTOOL, &mut request)?;
    let name = information.driver.split(|&octet| octet == 0).next();
    let name = name.expect("invariant: split gives at least one part");
    String::from_utf8(name.to_vec()).map_err(io::Error::other)
}

/// `struct ethtool_drvinfo`: 196 octets.
#[repr(C)]
struct DriverInformation {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// ETH_FLAG_LRO.
const FLAG_LRO: u32 = 1 << 15;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

fn ethtool(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = EthtoolValue { command, data };
    let mut request = named(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    ioctl(&any_socket()?, libc::SIOCETHTOOL, &mut request)?;
    Ok(value.data)
}

/// The answer to a query about an interface: the first 16 octets of the union in `ifreq`. A `sockaddr`, an
/// `int` or a `short` starts at octet 0, according to the query.
fn query(socket: &OwnedFd, name: &str, what: libc::Ioctl) -> io::Result<[u8; 16]> {
    let mut request = named(name)?;
    ioctl(socket, what, &mut request)?;
    // SAFETY: `named` initialised the whole union with zeros and the kernel wrote initialised octets over
    // them. This member is an array of octets, of which every value is valid.
    let answer = unsafe { request.ifr_ifru.ifru_newname };
    Ok(answer.map(|octet| u8::from_ne_bytes(octet.to_ne_bytes())))
}

/// An `int` that is never negative.
fn number([a, b, c, d, ..]: [u8; 16]) -> io::Result<u32> {
    u32::try_from(i32::from_ne_bytes([a, b, c, d])).map_err(io::Error::other)
}

/// A request about an interface. The name and its closing zero must fit in 16 octets.
fn named(name: &str) -> io::Result<libc::ifreq> {
    let mut request = libc::ifreq::zeroed();
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of an interface"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

fn ioctl(socket: &OwnedFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every command used in this file reads and writes one `ifreq`. For SIOCETHTOOL the `ifreq`
    // points to a structure that the caller keeps alive and that is as long as its command requires.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut *request) }).map(drop)
}

/// The cookie of this network namespace: a number that no other namespace has until the next boot. Linux 5.14
/// or later.
pub fn namespace_cookie() -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    option(any_socket()?.as_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE)
}

/// A socket for the queries of this file. The kernel accepts them on a socket of any family.
fn any_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_has_is_an_error() {
        for name in ["", "sixteen-octets-x", "a\0b", "no-such-one"] {
            assert!(Interface::named(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_loopback_is_not_ethernet() {
        assert_eq!(Interface::named("lo").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn an_error_of_the_system_does_not_mean_that_the_interface_is_missing() {
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EPERM] {
            assert!(!Interface::is_missing(&io::Error::from_raw_os_error(errno)), "{errno}");
        }
    }

    #[test]
    fn an_index_without_an_interface_is_an_error() {
        for index in [0, 0x7fff_ffff, u32::MAX] {
            assert!(Interface::is_missing(&Interface::indexed(index).unwrap_err()), "{index}");
        }
    }

    /// netdevice(7) and sysfs must agree about `lo`, whose index is 1 in every network namespace.
    #[test]
    fn the_loopback_has_the_fields_that_sysfs_shows() {
        let loopback = Interface::of_any_kind(&any_socket().unwrap(), "lo").unwrap();
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let flags = std::fs::read_to_string("/sys/class/net/lo/flags").unwrap();
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap();
        assert_eq!((loopback.index, loopback.mtu), (1, mtu.trim().parse().unwrap()));
        assert_eq!(loopback.up, flags & 1 != 0);
        if loopback.up {
            assert_eq!(loopback.v4().unwrap(), Ipv4Addr::LOCALHOST);
        }
    }
}
