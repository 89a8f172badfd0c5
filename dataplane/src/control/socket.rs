//! A unix socket by which a running program tells what it counted: `dataplane status`.
//!
//! One request a connection: the word `text` or `json` and a line end. The answer goes on until the connection ends.
//! Only the user that runs the program may connect.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::host::sys::poll::any_readable;

/// How the answer is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The socket of a running program; removed when dropped.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens. A socket that a killed program left behind is replaced; one that is answered on is not.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another program answers there"));
        }
        // What is no socket was not left behind: a wrong path must not cost a file, and `bind` refuses it.
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

    /// Answers until `stop`. All clients are served at once: one that says nothing, or does not read what it is told,
    /// keeps nobody waiting and is cut off after a while, or when there are too many.
    pub fn serve(&self, stop: &AtomicBool, answer: impl Fn(Format) -> String) -> io::Result<()> {
        let mut clients = VecDeque::new();
        let mut room = Room { clients: CLIENTS, pause: None };
        while !stop.load(Ordering::Relaxed) {
            let patience = if clients.iter().any(Client::is_told) { SOON } else { PATIENCE };
            // What a client says after its request is of no interest.
            let asking = clients.iter().filter(|client| !client.is_told()).map(Client::fd);
            // A listener that no descriptor is free for would be readable all the time.
            let listener = room.accepts().then(|| self.listener.as_fd());
            any_readable(asking.chain(listener), patience)?;
            if room.accepts() {
                self.accept(&mut clients, &mut room)?;
            }
            clients.drain(..clients.len().saturating_sub(room.clients));
            clients.retain_mut(|client| client.turn(&answer));
        }
        Ok(())
    }

    /// Takes clients that wait to be served; a bounded number of them, so that those before them are answered meanwhile.
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

/// How many clients there may be, and from when on more are taken.
#[derive(Debug)]
struct Room {
    clients: usize,
    pause: Option<Instant>,
}

impl Room {
    fn accepts(&self) -> bool {
        self.pause.is_none_or(|until| until <= Instant::now())
    }

    /// There are no descriptors for more than `clients`, and the rest of the program needs some too: from now on half as
    /// many are kept.
    fn shrink(&mut self, clients: usize) {
        self.clients = (clients / 2).clamp(1, self.clients);
        self.pause = Some(Instant::now() + PATIENCE);
    }
}

/// A connection, of which a part of the request has been read or a part of the answer written.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    since: Instant,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, since: Instant::now(), request: Vec::new(), answer: Vec::new() })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Has it an answer that it has not read?
    fn is_told(&self) -> bool {
        !self.answer.is_empty()
    }

    /// Goes on as far as it can without waiting; says whether there is more to do.
    fn turn(&mut self, answer: impl Fn(Format) -> String) -> bool {
        let goes_on = if self.is_told() { self.tell() } else { self.hear(answer) };
        // An error is the end of the client, and of nothing else.
        goes_on.unwrap_or(false) && self.since.elapsed() < SLOWEST
    }

    fn hear(&mut self, answer: impl Fn(Format) -> String) -> io::Result<bool> {
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
        self.answer = match self.request.trim_ascii_end() {
            b"text" => answer(Format::Text),
            b"json" => answer(Format::Json),
            _ => "unknown request; known are: text, json\n".to_owned(),
        }
        .into_bytes();
        self.tell()
    }

    fn tell(&mut self) -> io::Result<bool> {
        while self.is_told() {
            match self.stream.write(&self.answer) {
                Ok(written) => drop(self.answer.drain(..written)),
                Err(error) => return later(error),
            }
        }
        Ok(false)
    }
}

/// Not an end, but a pause.
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
        // It is gone already, or will be replaced by the next one.
        drop(fs::remove_file(&self.path));
    }
}

/// Asks a running program.
pub fn ask(path: &Path, format: Format) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(SLOWEST))?;
    let word: &[u8] = if format == Format::Json { b"json\n" } else { b"text\n" };
    stream.write_all(word)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// None waits, or the client went away before it was accepted.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

/// Of the process, of the system, or of the memory that one takes.
fn is_short_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// How soon it notices that it should stop.
const PATIENCE: Duration = Duration::from_millis(100);
/// How soon it goes on with an answer that a client had no room for.
const SOON: Duration = Duration::from_millis(5);
/// The longest that a client may take.
const SLOWEST: Duration = Duration::from_secs(2);
/// Clients at a time; of more, those go that came first.
const CLIENTS: usize = 64;
/// Octets; the known requests are shorter.
const LONGEST_REQUEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Stops the server where a test fails, too: its scope would wait for ever.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn questions_are_answered_in_the_format_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let control = Control::bind(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = Stop(&stop);
            let server = scope.spawn(|| control.serve(&stop, |format| format!("{format:?}")));
            assert_eq!(ask(&path, Format::Text).unwrap(), "Text");
            assert_eq!(ask(&path, Format::Json).unwrap(), "Json");
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(&[b'x'; 100]).unwrap();
            let mut answer = Vec::new();
            // Reset or answered, it ends; and the next one is served.
            drop(stream.read_to_end(&mut answer));
            assert_eq!(ask(&path, Format::Json).unwrap(), "Json");
            assert_eq!(Control::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            drop(ends);
            server.join().unwrap().unwrap();
        });
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(control);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced_but_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Control::bind(&path).unwrap());
        fs::write(&path, "not ours").unwrap();
        assert_eq!(Control::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&path).unwrap(), "not ours");
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("tryst");
        let refused = Control::bind(&missing.join("control")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert_eq!(refused.to_string(), format!("there is no folder {}", missing.display()));
    }

    /// They say nothing, half a word, or do not read; more of them than are kept. The one that asks properly is told, and
    /// when the last word has come late, so is the one that sent it.
    #[test]
    fn idle_and_deaf_clients_keep_nobody_waiting() {
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
                    // Those that came first may have been cut off already.
                    drop(stream.write_all([&b""[..], b"te", b"json\n"][number % 3]));
                    stream
                })
                .collect();
            // Had each its two seconds, this would take minutes, and `ask` gives up after two.
            for _ in 0..3 {
                assert_eq!(ask(&path, Format::Text).unwrap(), long);
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
