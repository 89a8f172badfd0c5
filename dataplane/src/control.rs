//! A unix socket by which a running program tells what it counted: `dataplane status`.
//!
//! One request a connection: the word `text` or `json` and a line end. The answer goes on until the connection ends.
//! Only the user that runs the program may connect.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sys::poll::readable;

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
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Answers until `stop`. A client that is slow or does not keep to the protocol is cut off.
    pub fn serve(&self, stop: &AtomicBool, answer: impl Fn(Format) -> String) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            readable([self.listener.as_fd()], PATIENCE)?;
            match self.listener.accept() {
                Ok((stream, _)) => drop(serve_one(stream, &answer)),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
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

fn serve_one(stream: UnixStream, answer: impl Fn(Format) -> String) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SLOWEST))?;
    stream.set_write_timeout(Some(SLOWEST))?;
    let mut request = String::new();
    BufReader::new((&stream).take(16)).read_line(&mut request)?;
    let text = match request.trim_end() {
        "text" => answer(Format::Text),
        "json" => answer(Format::Json),
        _ => "unknown request; known are: text, json\n".to_owned(),
    };
    (&stream).write_all(text.as_bytes())
}

/// The client went away before it was accepted, or there are too many files open right now.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    ) || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// How soon it notices that it should stop.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest that one client can keep others waiting.
const SLOWEST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_in_the_format_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let control = Control::bind(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
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
            stop.store(true, Ordering::Relaxed);
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
}
