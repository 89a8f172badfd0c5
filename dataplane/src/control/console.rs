//! Output of a running program for its operator. A closed output is no reason to stop forwarding, so nothing
//! here panics as `eprintln!` and `print!` do.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::ExitCode;

use common::text::{Printable, PrintableLine};

use crate::control::socket::Format;

/// Logs an event, as a single line on standard error.
pub(crate) fn log(program: &str, what: fmt::Arguments<'_>) {
    drop(writeln!(io::stderr(), "{program}: {}", PrintableLine(what)));
}

/// Prints why the program fails. If another program failed, its output follows in lines of its own.
pub fn fail(error: &anyhow::Error) {
    drop(writeln!(io::stderr(), "dataplane: {}", Printable(format_args!("{error:#}"))));
}

/// Prints the help, the version, or the error of a command line. An error repeats arguments, so it is printed
/// with escapes.
pub fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        drop(write!(io::stderr(), "{}", Printable(error.render())));
    } else {
        drop(error.print());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX))
}

/// Prints counters: as text with escapes, or JSON unchanged.
pub(crate) fn show(report: &str, format: Format) {
    drop(match format {
        Format::Text => write!(io::stdout(), "{}", Printable(report)),
        Format::Json => io::stdout().write_all(report.as_bytes()),
    });
}

/// Notifies the service manager, if `NOTIFY_SOCKET` is set, that the program is ready (sd_notify(3)).
pub(crate) fn ready() {
    if let Some(Err(error)) = std::env::var_os("NOTIFY_SOCKET").map(|socket| notify(&socket)) {
        log("notify", format_args!("cannot notify the service manager: {error}"));
    }
}

/// Sends the notification. A name that starts with `@` is an abstract socket.
fn notify(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1\n", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_is_notified_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("tryst test notify {}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (manager, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&by_name).unwrap(), format!("@{name}").into()),
        ] {
            notify(&name).unwrap();
            let mut octets = [0; 64];
            let len = manager.recv(&mut octets).unwrap();
            assert_eq!(&octets[..len], b"READY=1\n");
        }
        assert!(notify(OsStr::new("/no/such/socket")).is_err());
    }
}
