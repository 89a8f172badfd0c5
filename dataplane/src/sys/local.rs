//! Abstract unix sockets (unix(7)) used as names: each is held by one process of a network namespace at a time, and is
//! free again when that process ends, however it ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::{Zeroable, check, option, socklen};

/// A name that this process holds until it is dropped.
#[derive(Debug)]
pub struct Name(#[expect(dead_code, reason = "held, not used")] UnixListener);

impl Name {
    /// `AddrInUse` if another process holds it.
    pub fn take(name: &str) -> io::Result<Self> {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?).map(Self)
    }
}

/// The user whose process holds a name: any user may take any name. `WouldBlock` where too many have asked.
pub fn holder(name: &str) -> io::Result<u32> {
    let mut address = libc::sockaddr_un::zeroed();
    address.sun_family = u16::try_from(libc::AF_UNIX).unwrap_or_default();
    // The first octet stays 0, which is what makes a name abstract.
    let room = address.sun_path.iter_mut().skip(1);
    if name.len() > room.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    room.zip(name.bytes()).for_each(|(to, from)| *to = from.cast_signed());
    let len = socklen::<libc::sa_family_t>() + 1 + libc::socklen_t::try_from(name.len()).unwrap_or(0);
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes and gives integers alone.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the kernel has just opened `fd` for us and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the address lives through the call and has at least `len` octets.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    let peer: libc::ucred = option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(peer.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_once_and_by_someone() {
        let name = format!("tryst test {}", std::process::id());
        let held = Name::take(&name).unwrap();
        assert_eq!(Name::take(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(holder(&name).unwrap(), super::super::process::user());
        // Nobody answers those who ask; they are told so and do not wait.
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let most: u32 = most.trim().parse().unwrap();
        let asked = (0..most.saturating_add(2)).find_map(|_| holder(&name).err()).unwrap();
        assert_eq!(asked.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert_eq!(holder(&name).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        drop(Name::take(&name).unwrap());
        assert!(holder(&"x".repeat(108)).is_err());
    }
}
