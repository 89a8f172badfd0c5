//! Network interfaces: index, addresses, MTU (netdevice(7)); and the offloads that change what frames look like
//! (linux/ethtool.h).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use super::{Zeroable, check, option};

/// An Ethernet interface, as it was when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// As in `ip link`.
    pub name: String,
    /// The kernel's number for it, which a rename does not change.
    pub index: u32,
    /// Its own address.
    pub mac: [u8; 6],
    /// The longest IP packet it carries, in octets.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Up and connected: frames that are sent now leave.
    pub running: bool,
}

impl Interface {
    /// Looks an interface up by name. `InvalidInput` if it is not Ethernet.
    pub fn named(name: &str) -> io::Result<Self> {
        let socket = any_socket()?;
        let hardware = ask(&socket, name, libc::SIOCGIFHWADDR)?;
        // SAFETY: a successful SIOCGIFHWADDR has filled this member; any octets are a valid value of it.
        let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr };
        if hardware.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an Ethernet interface"));
        }
        let mac = std::array::from_fn(|at| hardware.sa_data[at].cast_unsigned());
        Ok(Self { mac, ..Self::of_any_kind(&socket, name)? })
    }

    /// Its first IPv4 address. `AddrNotAvailable` if it has none.
    pub fn v4(&self) -> io::Result<Ipv4Addr> {
        let address = ask(&any_socket()?, &self.name, libc::SIOCGIFADDR)?;
        // SAFETY: a successful SIOCGIFADDR has filled this member; any octets are a valid value of it.
        let address = unsafe { address.ifr_ifru.ifru_addr };
        // Behind the two octets of the port.
        let octets = std::array::from_fn::<u8, 4, _>(|at| address.sa_data[2 + at].cast_unsigned());
        Ok(octets.into())
    }

    fn of_any_kind(socket: &OwnedFd, name: &str) -> io::Result<Self> {
        let index = ask(socket, name, libc::SIOCGIFINDEX)?;
        // SAFETY: a successful SIOCGIFINDEX has filled this member; any octets are a valid value of it.
        let index = unsafe { index.ifr_ifru.ifru_ifindex };
        let mtu = ask(socket, name, libc::SIOCGIFMTU)?;
        // SAFETY: a successful SIOCGIFMTU has filled this member; any octets are a valid value of it.
        let mtu = unsafe { mtu.ifr_ifru.ifru_mtu };
        let flags = ask(socket, name, libc::SIOCGIFFLAGS)?;
        // SAFETY: a successful SIOCGIFFLAGS has filled this member; any octets are a valid value of it.
        let flags = unsafe { flags.ifr_ifru.ifru_flags };
        Ok(Self {
            name: name.to_owned(),
            index: u32::try_from(index).map_err(io::Error::other)?,
            mac: [0; 6],
            mtu: u32::try_from(mtu).map_err(io::Error::other)?,
            up: i32::from(flags) & libc::IFF_UP != 0,
            running: i32::from(flags) & libc::IFF_RUNNING != 0,
        })
    }

    /// Waits until an interface is [`running`](Self::running). The kernel tells itself of a new cable at most once a
    /// second, and drops what is sent before.
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

    /// Looks an interface up by index.
    pub fn indexed(index: u32) -> io::Result<Self> {
        let socket = any_socket()?;
        let mut request = libc::ifreq::zeroed();
        request.ifr_ifru.ifru_ifindex = i32::try_from(index).map_err(io::Error::other)?;
        ioctl(&socket, libc::SIOCGIFNAME, &mut request)?;
        let name: Vec<u8> = request.ifr_name.iter().map(|&octet| octet.cast_unsigned()).collect();
        let name = name.split(|&octet| octet == 0).next().unwrap_or_default();
        Self::named(std::str::from_utf8(name).map_err(io::Error::other)?)
    }
}

/// An offload that merges frames or leaves their checksums to hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Receive: the kernel merges frames of a flow.
    Gro,
    /// Receive: the hardware does.
    Lro,
    /// Send: checksums are left to the hardware.
    TxChecksum,
    /// Send: the hardware splits what TCP made too long.
    Tso,
    /// Send: the kernel does, as late as it can.
    Gso,
}

impl Offload {
    /// As ethtool(8) spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gro => "gro",
            Self::Lro => "lro",
            Self::TxChecksum => "tx",
            Self::Tso => "tso",
            Self::Gso => "gso",
        }
    }

    /// Is it on?
    pub fn is_on(self, interface: &str) -> io::Result<bool> {
        let value = ethtool(interface, self.commands().0, 0)?;
        Ok(if self == Self::Lro { value & FLAG_LRO != 0 } else { value != 0 })
    }

    /// Switches it. Needs CAP_NET_ADMIN.
    pub fn switch(self, interface: &str, on: bool) -> io::Result<()> {
        let value = if self == Self::Lro {
            // LRO shares a word of flags with others, which stay as they are.
            let flags = ethtool(interface, self.commands().0, 0)?;
            if on { flags | FLAG_LRO } else { flags & !FLAG_LRO }
        } else {
            u32::from(on)
        };
        ethtool(interface, self.commands().1, value).map(drop)
    }

    /// ETHTOOL_G… and ETHTOOL_S….
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

/// The name of an interface's driver, as `ethtool -i` shows it.
pub fn driver(interface: &str) -> io::Result<String> {
    const ETHTOOL_GDRVINFO: u32 = 0x3;
    let mut information = DriverInformation { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    let mut request = named(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut information).cast();
    ioctl(&any_socket()?, libc::SIOCETHTOOL, &mut request)?;
    let name = information.driver.split(|&octet| octet == 0).next().unwrap_or_default();
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

fn ask(socket: &OwnedFd, name: &str, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    let mut request = named(name)?;
    ioctl(socket, what, &mut request)?;
    Ok(request)
}

/// A request about an interface, whose name has to fit with its closing zero.
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
    // SAFETY: all requests made here read and write one `ifreq`; where it holds a pointer (SIOCETHTOOL) the caller
    // keeps the structure of its command alive behind it, the whole of what that command accesses.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut *request) }).map(drop)
}

/// A number of the network namespace that no other has until the next boot. Linux 5.14 or later.
pub fn namespace_cookie() -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    option(any_socket()?.as_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE)
}

/// Interfaces are asked about through a socket of any kind.
fn any_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes and gives integers alone.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just opened `fd` for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_has_are_refused() {
        for name in ["", "sixteen-octets-x", "a\0b", "no-such-one"] {
            assert!(Interface::named(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_loopback_is_not_ethernet() {
        assert_eq!(Interface::named("lo").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
