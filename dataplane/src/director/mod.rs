//! `dataplane run`: a director. It receives clients' packets on an interface and sends each, encapsulated, to
//! the backend that the forwarding table names.
//!
//! ```text
//!  interface ─► worker 0 ─► pipeline ─► next hop          table file ──┐ changed, SIGHUP
//!           ├─► worker 1 ─► pipeline ─► next hop          routes ──────┤ changed (netlink)
//!           ┊        ▲ forwarding state, swapped as a whole            ▼
//!           ┊        └──────────────────────────────── control loop ◄── events ◄── signals, inotify, netlink
//! ```
//!
//! - The kernel distributes frames over the workers by flow (PACKET_FANOUT). Workers share no data that they
//!   write.
//! - The forwarding state is a table with the next hops of its backends. The control loop builds a new state
//!   when either changes and publishes it with a single store. Workers check for a new state between batches.
//! - A table that cannot be read, or is older than the running one, changes nothing and is reported.
//! - A thread of its own reads files (`table_file`), so the control loop waits for no file system.
//!
//! Requirements on the host: a packet socket only copies, so the kernel gets every packet too. The VIPs are
//! not addresses of the host and the host does not forward (`net.ipv4.ip_forward`,
//! `net.ipv6.conf.all.forwarding`), so the kernel drops these packets silently: no reset, no ICMP. `run`
//! checks this and warns. That is also why the verdict "pass" needs no action here.
//!
//! A host that is also a backend has the VIPs, so its kernel must be configured to ignore packets for them
//! that arrive on the director's interface: [`leave_to_director`]. Packets whose primary is the host itself
//! are sent to its own address over `lo`, where its redirector receives them like those from other directors.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use arc_swap::ArcSwap;
use common::bind::Prefix;
use common::table::ForwardingTable;
use crossbeam::channel;

pub use self::args::{RunArgs, StatusArgs};
use self::counters::{Aggregate, Identity};
use self::events::{Event, Sources};
use self::forwarding::{ForwardingState, Settings};
use self::kernel_path::KernelPath;
use self::offloads::OffloadGuard;
use self::supervise::Supervisor;
use self::table_file::{TableFile, arm};
use self::worker::Shared;
use crate::control::config::{ASSUMED, Config, ConfigError, Mode, Offloads};
use crate::control::console::{self, show};
use crate::control::instance::InstanceLock;
use crate::control::socket::{Control, Format};
use crate::control::table::{self, LoadedTable};
use crate::drivers::af_packet::AfPacket;
use crate::drivers::pnet::Pnet;
use crate::host::route::{Monitor, Resolver};
use crate::host::sys::capability::{Capability, missing};
use crate::host::sys::inotify::{Armer, Watch};
use crate::host::sys::interface::Interface;
use crate::host::sys::packet::{Fanout, SelfSender};
use crate::host::sys::signal::Signals;
use crate::host::sys::thread;

mod args;
mod counters;
mod events;
mod forwarding;
mod ipv6_mtu;
mod kernel_path;
mod limiter;
mod offloads;
mod supervise;
mod table_file;
mod worker;

/// A director with all its resources open, not yet forwarding.
#[derive(Debug)]
pub struct Director {
    config: Config,
    links: Vec<Driver>,
    cpus: Vec<usize>,
    own: SelfSender,
    shared: Shared,
    sources: Sources,
    supervisor: Supervisor,
    control: Option<Control>,
    table: (TableFile, Armer),
    _lock: Arc<InstanceLock>,
    /// The last field, so that offloads are restored after everything else has ended.
    _offloads: Option<OffloadGuard>,
}

/// Command-line options, for as long as the director runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Replaces the configuration's `mode`.
    pub mode: Option<Mode>,
    /// Whether a table may be older than the running one.
    pub allow_rollback: bool,
    /// Whether counters are printed as JSON.
    pub json: bool,
}

impl Options {
    fn load(self, path: &Path) -> Result<Config, ConfigError> {
        let config = Config::load(path)?;
        Ok(Config { mode: self.mode.unwrap_or(config.mode), ..config })
    }
}

#[derive(Debug)]
enum Driver {
    AfPacket(Box<AfPacket>),
    Pnet(Box<Pnet>),
}

impl Director {
    /// Checks the configuration and the table.
    ///
    /// # Errors
    /// If the configuration or the table is refused.
    pub fn check(config: &Path) -> anyhow::Result<()> {
        let config = Config::load(config)?;
        let table = usable(table::load(&config.table)?, &config)?;
        if let Some(warning) = expected_mtu(&config).and_then(|mtu| ipv6_mtu::warning(&table, mtu)) {
            log(format_args!("{warning}"));
        }
        show(&format!("{}: {}\n", config.table.display(), forwarding::name(&table)), Format::Text);
        Ok(())
    }

    /// Opens all resources. Signals are blocked for the calling thread from here on.
    ///
    /// # Errors
    /// If the configuration or the table is refused, or a system call fails.
    pub fn start(config_path: &Path, options: Options) -> anyhow::Result<Self> {
        let config = options.load(config_path)?;
        let (file, table) = TableFile::open(&config.table)?;
        let table = usable(table, &config)?;
        privileges()?;
        let signals = Signals::block().context("signals")?;
        let interface = interface(&config.interface)?;
        let lock = Arc::new(InstanceLock::on(&interface, log)?);
        // Subscribed before the first query, so that no change between the two is missed.
        let monitor = Monitor::open().context("netlink")?;
        let mut resolver = Resolver::open(config.underlay.pinned()).context("netlink")?;
        warn_about_host(&table, &interface, &mut resolver)?;
        let state = Arc::new(ForwardingState::new(table, 0, settings(&config), &mut resolver)?);
        let offloads = offloads(&config, &interface, &lock)?;
        let cpus = thread::allowed_cpus().context("CPUs")?;
        let workers = config.workers.map_or(cpus.len(), usize::from).max(1);
        let links = open_links(&config, interface.index, workers)?;
        let control = config.control.as_deref().map(bind_control).transpose()?;
        let watch = Watch::open().context("inotify")?;
        let mut armer = watch.armer();
        arm(&mut armer, &config.table);
        let identity = Identity { interface: interface.name.clone(), mode: config.mode.name(), workers };
        Ok(Self {
            links,
            cpus,
            own: SelfSender::open().context("raw sockets")?,
            shared: Shared {
                aggregate: Aggregate::new(workers, &state),
                kernel_path: KernelPath::start(&config, &interface, &state)?,
                state: ArcSwap::new(state),
                stop: AtomicBool::new(false),
                ifindex: interface.index,
            },
            sources: Sources { signals, watch, monitor },
            supervisor: Supervisor::new(config_path, config.clone(), resolver, identity, options),
            control,
            table: (file, armer),
            _lock: lock,
            _offloads: offloads,
            config,
        })
    }

    /// Forwards until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// If a worker fails.
    pub fn run(self) -> anyhow::Result<()> {
        let Self { config, links, cpus, own, shared, sources, supervisor, control, table, _lock, _offloads } =
            self;
        let (sender, events) = channel::bounded(64);
        let (file, armer) = table;
        let waker = table_file::follow(file, armer, supervisor.config_reader(), sender.clone());
        let waker = waker.context("a thread")?;
        let name = config.table.file_name().unwrap_or(OsStr::new(""));
        supervisor.log_start(&config, &shared);
        let outcome = crossbeam::thread::scope(|scope| {
            let (shared, supervisor, own, waker) = (&shared, &supervisor, &own, &waker);
            for (number, link) in links.into_iter().enumerate() {
                let sender = sender.clone();
                let cpu = cpus.get(number % cpus.len().max(1)).copied();
                scope.spawn(move |_| report(&sender, "worker", || pinned(cpu, number, link, own, shared)));
            }
            if let Some(control) = &control {
                let sender = sender.clone();
                let answer = |format| supervisor.report(shared, format);
                scope.spawn(move |_| {
                    report(&sender, "control socket", || control.serve(&shared.stop, answer))
                });
            }
            scope.spawn(move |_| {
                report(&sender, "events", || sources.watch(&sender, (name, waker), &shared.stop))
            });
            console::ready();
            let outcome = supervisor.run(&events, shared, waker);
            shared.stop.store(true, Ordering::Relaxed);
            // Dropping the receiver wakes senders that wait for room in the channel.
            drop(events);
            outcome
        });
        let outcome = outcome.map_err(|_| anyhow::anyhow!("a thread panicked"))?;
        supervisor.print(&shared);
        outcome
    }
}

/// Runs a thread's work, and reports an error or a panic to the control loop: a director without one of its
/// workers would silently lose that worker's flows.
fn report(sender: &channel::Sender<Event>, who: &'static str, work: impl FnOnce() -> io::Result<()>) {
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    if let Err(error) = outcome.unwrap_or_else(|_| Err(io::Error::other("panicked"))) {
        // The control loop may have ended first.
        drop(sender.send(Event::Failed(who, error)));
    }
}

fn pinned(
    cpu: Option<usize>,
    number: usize,
    link: Driver,
    own: &SelfSender,
    shared: &Shared,
) -> io::Result<()> {
    if let Some(Err(error)) = cpu.map(thread::pin) {
        log(format_args!("worker {number} is not bound to a CPU: {error}"));
    }
    match link {
        Driver::AfPacket(link) => worker::work(number, *link, own, shared),
        Driver::Pnet(link) => worker::work(number, *link, own, shared),
    }
}

/// The underlay's MTU as far as it is known without a route look-up: the configured MTU, or that of the
/// interface if this host has it.
fn expected_mtu(config: &Config) -> Option<u16> {
    let of_interface = || u16::try_from(Interface::named(&config.interface).ok()?.mtu).ok();
    config.underlay.mtu.or_else(of_interface)
}

fn privileges() -> anyhow::Result<()> {
    let missing = missing(&[Capability::NetRaw, Capability::NetAdmin]).context("capabilities")?;
    let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
    anyhow::ensure!(
        missing.is_empty(),
        "a director needs CAP_NET_RAW (frames) and CAP_NET_ADMIN (offloads, neighbours) and lacks {}: run it as root, or \
         `setcap cap_net_raw,cap_net_admin+ep dataplane`, or AmbientCapabilities= in its unit",
        names.join(" and ")
    );
    Ok(())
}

fn interface(name: &str) -> anyhow::Result<Interface> {
    let interface = Interface::named(name).with_context(|| name.to_owned())?;
    anyhow::ensure!(interface.up, "{name} is down: ip link set {name} up");
    Ok(interface)
}

fn offloads(
    config: &Config,
    interface: &Interface,
    lock: &Arc<InstanceLock>,
) -> anyhow::Result<Option<OffloadGuard>> {
    match config.offloads {
        Offloads::Off => {
            let guard = OffloadGuard::switch_off(interface, lock);
            Ok(Some(guard.with_context(|| format!("{}: switching GRO and LRO off", interface.name))?))
        }
        Offloads::Keep => {
            drop(OffloadGuard::left_off(interface, lock));
            let interface = &interface.name;
            for offload in offloads::on(interface) {
                let name = offload.name();
                log(format_args!("{interface}: {name} is on: frames that it merges are dropped (`merged`)"));
            }
            Ok(None)
        }
    }
}

fn open_links(config: &Config, ifindex: u32, workers: usize) -> anyhow::Result<Vec<Driver>> {
    let mut fanout = Fanout::default();
    let mut open = || {
        let group = (workers > 1).then_some(&mut fanout);
        io::Result::Ok(match config.mode {
            Mode::Auto | Mode::Xdp | Mode::AfPacket => {
                Driver::AfPacket(Box::new(AfPacket::open(ifindex, group)?))
            }
            Mode::Pnet => Driver::Pnet(Box::new(Pnet::open(&config.interface, group)?)),
        })
    };
    let links: io::Result<Vec<_>> = (0..workers).map(|_| open()).collect();
    links.with_context(|| format!("{}: packet socket ({})", config.interface, config.mode.name()))
}

fn bind_control(path: &Path) -> anyhow::Result<Control> {
    Control::bind(path).with_context(|| format!("control: {}", path.display()))
}

/// Warns if this host's own stack, which receives all packets too, would answer or forward them. Only the
/// first address of a prefix is checked: that finds a prefix that is local as a whole, but not a single local
/// address inside it.
fn warn_about_host(
    table: &ForwardingTable,
    interface: &Interface,
    resolver: &mut Resolver,
) -> anyhow::Result<()> {
    let vips: BTreeSet<Prefix> = table.binds().iter().map(|(bind, _)| bind.prefix).collect();
    let taken = resolver.accepts(vips.iter().map(|vip| vip.address()), interface.index).context("netlink")?;
    for (vip, _) in vips.into_iter().zip(taken).filter(|(_, taken)| *taken) {
        log(format_args!(
            "VIP {vip} is an address of this host, which answers its packets too. If the host is not a backend, remove \
             the address; if it is, make it ignore what does not come from its redirector: {}",
            leave_to_director(vip, &interface.name)
        ));
    }
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        let path = Path::new("/proc/sys/net").join(switch);
        if fs::read_to_string(&path).is_ok_and(|text| text.trim() != "0") {
            log(format_args!(
                "{} is on: the host may forward clients' packets a second time",
                path.display()
            ));
        }
    }
    Ok(())
}

/// The shell command that makes a host ignore packets for a VIP that arrive on `interface`, so that only its
/// director handles them. For a host that has the VIP because it is also a backend. By default the kernel
/// looks up its table of local addresses before all other rules. The command moves that look-up to a later
/// rule, and inserts an earlier rule that drops these packets. Packets that the redirector decapsulates
/// arrive on `lo` and are not affected; nor are the server's replies.
pub fn leave_to_director(vip: Prefix, interface: &str) -> String {
    let ip = if vip.address().is_ipv4() { "ip rule" } else { "ip -6 rule" };
    format!(
        "{ip} add pref 2 lookup local && {ip} del pref 0; {ip} add pref 1 iif {interface} to {vip} blackhole"
    )
}

/// The table with the configuration's hash fields, if it is a GLB Director file. Warns if it has to assume
/// hash fields.
fn usable(loaded: LoadedTable, config: &Config) -> anyhow::Result<ForwardingTable> {
    let (table, assumes_fields) = loaded.with_fields(&config.table, config.glb)?;
    if assumes_fields {
        log(format_args!("{}: {ASSUMED}", config.table.display()));
    }
    Ok(table)
}

fn settings(config: &Config) -> Settings {
    Settings { underlay: config.underlay, too_big_per_second: config.too_big_per_second }
}

/// The folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Logs a line for the operator.
fn log(what: fmt::Arguments<'_>) {
    console::log("director", what);
}
