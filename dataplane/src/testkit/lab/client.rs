//! Clients that check every octet: each connection sends unpredictable bodies and must get them back.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::flow::FlowKey;
use common::hash::mix;
use common::table::Table;

use super::server;

/// Connections, live and broken, with the errors.
#[derive(Debug)]
pub struct Crowd {
    seed: u64,
    connections: Vec<Connection>,
}

/// A TCP connection, from its first request on.
#[derive(Debug)]
struct Connection {
    stream: BufReader<TcpStream>,
    backend: String,
    flow: FlowKey,
    requests: u64,
    awaited: Option<Vec<u8>>,
    broken: Option<String>,
}

/// The state of a group of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrowdCounts {
    /// Connections that were opened.
    pub opened: usize,
    /// Connections whose last response had the right octets.
    pub alive: usize,
    /// The other connections, by error.
    pub broken: BTreeMap<String, usize>,
}

impl CrowdCounts {
    /// Adds the counts of another group.
    pub fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        self.alive += other.alive;
        for (why, count) in &other.broken {
            *self.broken.entry(why.clone()).or_default() += count;
        }
    }

    /// Number of broken connections.
    pub fn broken(&self) -> usize {
        self.broken.values().sum()
    }
}

impl fmt::Display for CrowdCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} opened, {} alive, {} broken", self.opened, self.alive, self.broken())?;
        self.broken.iter().try_for_each(|(why, count)| write!(f, "; {count}: {why}"))
    }
}

impl Crowd {
    /// An empty group. All data that it sends is derived from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, connections: Vec::new() }
    }

    /// Opens `count` connections and sends a request on each. Fails at the first connection that cannot be
    /// opened.
    pub fn open(&mut self, count: usize, to: SocketAddr, patience: Duration) -> io::Result<()> {
        for _ in 0..count {
            let stream = connect(&to, patience)?;
            stream.set_nodelay(true)?;
            let number = self.connections.len();
            let local = stream.local_addr()?;
            let flow =
                FlowKey { src_addr: local.ip(), dst_addr: to.ip(), ports: Some((local.port(), to.port())) };
            let mut connection = Connection {
                flow,
                stream: BufReader::with_capacity(4_096, stream),
                backend: String::new(),
                requests: 0,
                awaited: None,
                broken: None,
            };
            connection.send(mix(self.seed ^ number as u64));
            connection.receive(patience);
            if let Some(why) = &connection.broken {
                return Err(io::Error::other(format!("the first request on connection {number}: {why}")));
            }
            self.connections.push(connection);
        }
        Ok(())
    }

    /// Sends a request on every live connection; the responses must arrive before `patience` ends.
    pub fn exchange(&mut self, patience: Duration) -> CrowdCounts {
        let seed = self.seed;
        for (number, connection) in self.connections.iter_mut().enumerate() {
            connection.send(mix(seed ^ number as u64));
        }
        let end = Instant::now() + patience;
        for connection in &mut self.connections {
            connection.receive(end.saturating_duration_since(Instant::now()));
        }
        self.counts()
    }

    /// Sends a request on each connection in turn. Returns the response times by the responding backend.
    pub fn time(&mut self, patience: Duration) -> Vec<(String, Duration)> {
        let seed = self.seed;
        let mut times = Vec::with_capacity(self.connections.len());
        for (number, connection) in self.connections.iter_mut().enumerate() {
            let start = Instant::now();
            connection.send(mix(seed ^ number as u64));
            connection.receive(patience);
            times.push((connection.backend.clone(), start.elapsed()));
        }
        times
    }

    /// The state after the last exchange.
    pub fn counts(&self) -> CrowdCounts {
        let mut counts = CrowdCounts { opened: self.connections.len(), ..CrowdCounts::default() };
        for connection in &self.connections {
            match &connection.broken {
                None => counts.alive += 1,
                Some(why) => *counts.broken.entry(why.clone()).or_default() += 1,
            }
        }
        counts
    }

    /// Number of connections of each backend, including broken ones.
    pub fn by_backend(&self) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        for connection in &self.connections {
            *count.entry(connection.backend.clone()).or_default() += 1;
        }
        count
    }

    /// Number of connections that each backend would have if all had been opened with this table.
    pub fn expected(&self, table: &Table) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        for connection in &self.connections {
            let primary = table.primary(table.row(&connection.flow, table.hash_fields));
            let owner = primary.and_then(|position| table.backend(position));
            *count.entry(owner.map_or_else(String::new, |owner| owner.id.clone())).or_default() += 1;
        }
        count
    }

    /// Number of live connections whose backend is not in their row's hop list of this table, which would cut
    /// them.
    pub fn at_risk(&self, table: &Table) -> usize {
        let alive = self.connections.iter().filter(|connection| connection.broken.is_none());
        let reached = |connection: &&Connection| {
            let row = table.row(&connection.flow, table.hash_fields);
            let hops = table.hops.get(row).iter().filter_map(|&at| table.backend(at));
            hops.into_iter().any(|hop| hop.id == connection.backend)
        };
        alive.filter(|connection| !reached(connection)).count()
    }

    /// Number of broken connections of each backend.
    pub fn broken_by_backend(&self) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        for connection in self.connections.iter().filter(|connection| connection.broken.is_some()) {
            *count.entry(connection.backend.clone()).or_default() += 1;
        }
        count
    }

    /// Closes the first `count` connections.
    pub fn close(&mut self, count: usize) {
        self.connections.drain(..count.min(self.connections.len()));
    }

    /// Closes the connections of a backend.
    pub fn close_on(&mut self, backend: &str) {
        self.connections.retain(|connection| connection.backend != backend);
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}

/// Connects, with retries while neighbours are unresolved: on a busy machine an ARP reply may take longer
/// than the three seconds that kernels wait for it.
fn connect(to: &SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let end = Instant::now() + patience;
    loop {
        match TcpStream::connect_timeout(to, patience) {
            Err(error) if error.kind() == io::ErrorKind::HostUnreachable && Instant::now() < end => {
                thread::sleep(Duration::from_millis(100));
            }
            outcome => return outcome,
        }
    }
}

impl Connection {
    fn send(&mut self, seed: u64) {
        if self.broken.is_some() {
            return;
        }
        self.requests += 1;
        let body = body(seed ^ (self.requests << 32));
        let head = format!("POST /echo HTTP/1.1\r\nHost: lab\r\nContent-Length: {}\r\n\r\n", body.len());
        match self.stream.get_mut().write_all(&[head.as_bytes(), &body].concat()) {
            Ok(()) => self.awaited = Some(body),
            Err(error) => self.broken = Some(words(&error)),
        }
    }

    fn receive(&mut self, patience: Duration) {
        let Some(expected) = self.awaited.take() else { return };
        // A timeout of zero would mean no timeout.
        let patience = patience.max(Duration::from_millis(1));
        let answer = self.stream.get_ref().set_read_timeout(Some(patience)).and_then(|()| self.answer());
        self.broken = match answer {
            Err(error) => Some(words(&error)),
            Ok(body) if body != expected => Some("wrong octets".into()),
            Ok(_) => None,
        };
    }

    fn answer(&mut self) -> io::Result<Vec<u8>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut backend = String::new();
        let body = server::headers(&mut self.stream, |name, value| {
            if name == "X-Backend" {
                value.clone_into(&mut backend);
            }
        })?;
        if self.backend.is_empty() {
            self.backend = backend;
        } else if self.backend != backend {
            return Err(io::Error::other("another backend answered"));
        }
        Ok(body)
    }
}

/// 1 to 4,096 octets.
fn body(seed: u64) -> Vec<u8> {
    let len = 1 + usize::try_from(mix(seed) & 0xfff).expect("invariant: 12 bits");
    (0..len as u64).map(|at| mix(seed ^ at).to_le_bytes()[0]).collect()
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer".into(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "reset".into(),
        io::ErrorKind::UnexpectedEof => "closed".into(),
        _ => error.to_string(),
    }
}
