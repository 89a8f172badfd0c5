//! A small HTTP/1.1 server with the part of RFC 9112 that clients of the lab need: it returns the body of the
//! request, and its own name in `X-Backend`. One thread per connection.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Context;

use super::netns::Namespace;

/// Largest body in octets; bodies are kept in memory.
const LONGEST_BODY: usize = 16 << 20;
/// Stack size of a connection's thread: there are many, with little work.
const STACK: usize = 128 << 10;

/// A server in a namespace. It and its connections end when it is dropped: otherwise a thread whose client's
/// host has disappeared would wait for ever.
#[derive(Debug)]
pub struct Server {
    stop: Arc<AtomicBool>,
    connections: Connections,
}

/// The accepted connections, as long as their threads run.
type Connections = Arc<Mutex<Vec<Weak<TcpStream>>>>;

impl Server {
    /// Listens on `address`; `[::]` accepts both families.
    pub fn start(namespace: &Namespace, name: &str, address: SocketAddr) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (name, stopped) = (Arc::<str>::from(name), Arc::clone(&stop));
        let connections = Connections::default();
        let accepted = Arc::clone(&connections);
        namespace
            .run(move || {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let work = move || accept(&listener, &name, &accepted, &stopped);
                thread::Builder::new().stack_size(STACK).spawn(work)
            })
            .with_context(|| format!("in {}: a server on {address}", namespace.name()))?;
        Ok(Self { stop, connections })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for stream in lock(&self.connections).iter().filter_map(Weak::upgrade) {
            // The client may have closed the connection.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

fn lock(connections: &Connections) -> MutexGuard<'_, Vec<Weak<TcpStream>>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, name: &Arc<str>, connections: &Connections, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let (name, stream) = (Arc::clone(name), Arc::new(stream));
                {
                    let mut open = lock(connections);
                    open.retain(|other| other.strong_count() > 0);
                    open.push(Arc::downgrade(&stream));
                    // Set before `drop` closes the open connections: either `drop` sees this connection, or
                    // this thread sees the flag.
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
                let work = move || serve(&stream, &name);
                // Without a thread the client sees the connection close, which the lab reports.
                drop(thread::Builder::new().stack_size(STACK).spawn(work));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(200))
            }
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Serves requests until the client closes the connection or sends an invalid request.
fn serve(stream: &TcpStream, name: &str) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(4_096, stream);
    while let Some(body) = request(&mut reader)? {
        let head = format!("HTTP/1.1 200 OK\r\nX-Backend: {name}\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut writer = stream;
        writer.write_all(&[head.as_bytes(), &body].concat())?;
    }
    Ok(())
}

/// The body of the next request; `None` at the end.
fn request(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    if !line.trim_end().ends_with(" HTTP/1.1") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    body(reader).map(Some)
}

/// Reads headers and body of a message, after its first line.
pub(super) fn body(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    headers(reader, |_, _| {})
}

/// As [`body`]; calls `each` with every header.
pub(super) fn headers(reader: &mut impl BufRead, mut each: impl FnMut(&str, &str)) -> io::Result<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        }
        each(name, value.trim());
    }
    if length > LONGEST_BODY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}
