//! The control socket: a unix socket on which a running program reports its counters to `dataplane status`.
//!
//! One request per connection: the word `text` or `json` and a line end. The reply ends with the connection.
//! Only the user that runs the program may connect.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::bounded::{self, MAX_TEXT_FILE};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::host::sys::poll::any_readable;

/// Format of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

/// The socket of a running program; removed when dropped.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Creates the socket. Replaces a stale socket of a killed program, but not one on which a program listens,
    /// even if that program accepts no connections.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let in_use = |why| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        match connect(path) {
            Ok(_) => return in_use("another program answers there"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return in_use("another program listens there, and does not accept connections");
            }
            Err(_) => {}
        }
        // Removes only sockets: a wrong path must not delete a file. `bind` refuses such a path.
        if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path).map_err(|error| match (error.kind(), path.parent()) {
            (io::ErrorKind::NotFound, Some(folder)) => {
                io::Error::new(error.kind(), format!("there is no folder {}", folder.display()))
            }
            _ => error,
        })?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves clients until `stop`. All clients are served concurrently. A client that sends nothing, or does
    /// not read its reply, delays no other client; it is disconnected after a time limit, or when there are
    /// too many clients.
    pub fn serve(&self, stop: &AtomicBool, reply: impl Fn(Format) -> String) -> io::Result<()> {
        let mut clients = VecDeque::new();
        let mut room = Room { clients: CLIENTS, pause: None };
        while !stop.load(Ordering::Relaxed) {
            let patience = if clients.iter().any(Client::has_reply) { SOON } else { PATIENCE };
            // Input after the request is ignored.
            let requesting = clients.iter().filter(|client| !client.has_reply()).map(Client::fd);
            // While no descriptor is free the listener would be readable all the time.
            let listener = room.accepts().then(|| self.listener.as_fd());
            any_readable(requesting.chain(listener), patience)?;
            if room.accepts() {
                self.accept(&mut clients, &mut room)?;
            }
            clients.drain(..clients.len().saturating_sub(room.clients));
            clients.retain_mut(|client| client.advance(&reply));
        }
        Ok(())
    }

    /// Accepts waiting clients. The number is limited, so that earlier clients are served in between.
    fn accept(&self, clients: &mut VecDeque<Client>, room: &mut Room) -> io::Result<()> {
        for _ in 0..CLIENTS {
            match self.listener.accept().and_then(|(stream, _)| Client::new(stream)) {
                Ok(client) => clients.push_back(client),
                Err(error) if is_short_of_descriptors(&error) => {
                    room.shrink(clients.len());
                    break;
                }
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The limit on clients, and the time from which new ones are accepted.
#[derive(Debug)]
struct Room {
    clients: usize,
    pause: Option<Instant>,
}

impl Room {
    fn accepts(&self) -> bool {
        self.pause.is_none_or(|until| until <= Instant::now())
    }

    /// Limits the clients to half of the current number, because no descriptor is left for more and the program
    /// itself needs some too.
    fn shrink(&mut self, clients: usize) {
        self.clients = (clients / 2).clamp(1, self.clients);
        self.pause = Some(Instant::now() + PATIENCE);
    }
}

/// A connection, with the parts of its request and reply so far.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    since: Instant,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, since: Instant::now(), request: Vec::new(), reply: Vec::new() })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether a part of the reply is still to be sent.
    fn has_reply(&self) -> bool {
        !self.reply.is_empty()
    }

    /// Continues as far as possible without blocking. Returns whether there is more to do.
    fn advance(&mut self, reply: impl Fn(Format) -> String) -> bool {
        let more = if self.has_reply() { self.write_reply() } else { self.read_request(reply) };
        // An error ends this client only.
        more.unwrap_or(false) && self.since.elapsed() < SLOWEST
    }

    fn read_request(&mut self, reply: impl Fn(Format) -> String) -> io::Result<bool> {
        let mut octets = [0; LONGEST_REQUEST];
        let len = match self.stream.read(&mut octets) {
            Ok(0) => return Ok(false),
            Ok(len) => len,
            Err(error) => return later(error),
        };
        self.request.extend_from_slice(&octets[..len]);
        if !self.request.contains(&b'\n') && self.request.len() < LONGEST_REQUEST {
            return Ok(true);
        }
        self.reply = match self.request.trim_ascii_end() {
            b"text" => reply(Format::Text),
            b"json" => reply(Format::Json),
            _ => "unknown request; known are: text, json\n".to_owned(),
        }
        .into_bytes();
        self.write_reply()
    }

    fn write_reply(&mut self) -> io::Result<bool> {
        while self.has_reply() {
            match self.stream.write(&self.reply) {
                Ok(written) => drop(self.reply.drain(..written)),
                Err(error) => return later(error),
            }
        }
        Ok(false)
    }
}

/// Turns an error that only means "not yet" into `true`: there is more to do.
fn later(error: io::Error) -> io::Result<bool> {
    let pause = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
    if pause { Ok(true) } else { Err(error) }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // If this fails the next program replaces the socket.
        drop(fs::remove_file(&self.path));
    }
}

/// Queries a running program.
pub fn query(path: &Path, format: Format) -> io::Result<String> {
    let mut stream = connect_within(path, SLOWEST)?;
    stream.set_read_timeout(Some(SLOWEST))?;
    let word: &[u8] = if format == Format::Json { b"json\n" } else { b"text\n" };
    stream.write_all(word)?;
    bounded::text(stream, None, MAX_TEXT_FILE)
}

/// Connects without waiting. The error is `WouldBlock` if the queue of the listener is full, where connect(2)
/// would wait without end.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects as soon as the queue of the listener has room, for as long as `patience`.
fn connect_within(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let start = Instant::now();
    loop {
        match connect(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && start.elapsed() < patience => {
                thread::sleep(SOON);
            }
            result => return result,
        }
    }
}

/// Whether no client waits, or the client disconnected before it was accepted.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

/// Whether the process or the system is out of descriptors, or of memory for one.
fn is_short_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Interval at which the server checks whether it should stop.
const PATIENCE: Duration = Duration::from_millis(100);
/// Interval at which the server continues a reply for which the client's buffer had no room.
const SOON: Duration = Duration::from_millis(5);
/// Time limit for a client.
const SLOWEST: Duration = Duration::from_secs(2);
/// Largest number of clients; beyond it the oldest are disconnected.
const CLIENTS: usize = 64;
/// Length of the longest request in octets; the valid requests are shorter.
const LONGEST_REQUEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Stops the server also when a test fails: otherwise its scope would wait for ever.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn requests_are_answered_in_the_requested_format() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let control = Control::bind(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = Stop(&stop);
            let server = scope.spawn(|| control.serve(&stop, |format| format!("{format:?}")));
            assert_eq!(query(&path, Format::Text).unwrap(), "Text");
            assert_eq!(query(&path, Format::Json).unwrap(), "Json");
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(&[b'x'; 100]).unwrap();
            let mut answer = Vec::new();
            // The connection is reset or answered; the next client is served.
            drop(stream.read_to_end(&mut answer));
            assert_eq!(query(&path, Format::Json).unwrap(), "Json");
            assert_eq!(Control::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            drop(ends);
            server.join().unwrap().unwrap();
        });
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(control);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_but_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Control::bind(&path).unwrap());
        fs::write(&path, "not ours").unwrap();
        assert_eq!(Control::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&path).unwrap(), "not ours");
    }

    /// If either waited for the queue, this test would never end.
    #[test]
    fn a_full_queue_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let mut queue = Vec::new();
        let full = loop {
            match connect(&path) {
                Ok(stream) => queue.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!((full.kind(), queue.is_empty()), (io::ErrorKind::WouldBlock, false));
        let refused = Control::bind(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(refused.to_string(), "another program listens there, and does not accept connections");
        assert_eq!(query(&path, Format::Text).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // With room in the queue it connects.
        drop(listener.accept().unwrap());
        assert!(connect(&path).is_ok());
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("tryst");
        let refused = Control::bind(&missing.join("control")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert_eq!(refused.to_string(), format!("there is no folder {}", missing.display()));
    }

    /// Clients that send nothing or a part of a request, or do not read; more than the limit. A client with a
    /// valid request gets its reply, also if the end of the request arrives late.
    #[test]
    fn clients_that_do_not_send_or_read_delay_no_other_client() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let control = Control::bind(&path).unwrap();
        let stop = AtomicBool::new(false);
        let long = "x".repeat(1 << 20);
        std::thread::scope(|scope| {
            let ends = Stop(&stop);
            let server = scope.spawn(|| control.serve(&stop, |_| long.clone()));
            let crowd: Vec<UnixStream> = (0..200)
                .map(|number| {
                    let mut stream = UnixStream::connect(&path).unwrap();
                    // The oldest clients may have been disconnected already.
                    drop(stream.write_all([&b""[..], b"te", b"json\n"][number % 3]));
                    stream
                })
                .collect();
            // If each silent client took its two seconds, this would take minutes, and `query` fails after
            // two.
            for _ in 0..3 {
                assert_eq!(query(&path, Format::Text).unwrap(), long);
            }
            let mut slow = UnixStream::connect(&path).unwrap();
            slow.set_read_timeout(Some(SLOWEST)).unwrap();
            for octet in b"text\n" {
                slow.write_all(&[*octet]).unwrap();
                std::thread::yield_now();
            }
            let mut answer = String::new();
            slow.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, long);
            drop(crowd);
            drop(ends);
            server.join().unwrap().unwrap();
        });
    }
}
