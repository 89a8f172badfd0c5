//! What a director reacts to, from the three descriptors by which the kernel tells.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::Sender;

use super::table_file::{Poke, Poker};
use crate::control::config::{Config, ConfigError};
use crate::control::table::{LoadError, LoadedTable};
use crate::host::route::{Changes, Monitor};
use crate::host::sys::inotify::Watch;
use crate::host::sys::poll::readable;
use crate::host::sys::signal::{Signal, Signals};

/// Something happened.
#[derive(Debug)]
pub(crate) enum Event {
    Signal(Signal),
    /// The configuration, read again.
    Config(Result<Config, ConfigError>),
    /// The table's file, read again.
    Table(Result<LoadedTable, LoadError>),
    /// Links, routes or neighbours changed.
    Network(Changes),
    /// A thread cannot go on.
    Failed(&'static str, io::Error),
}

/// Where events come from.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) signals: Signals,
    pub(crate) watch: Watch,
    pub(crate) monitor: Monitor,
}

/// How soon it notices that it should stop.
const PATIENCE: Duration = Duration::from_millis(100);

impl Sources {
    /// Passes events on until `stop`. Ends early if nobody listens any more.
    pub(crate) fn watch(
        mut self,
        sender: &Sender<Event>,
        table: (&OsStr, &Poker),
        stop: &AtomicBool,
    ) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let fds = [self.signals.as_fd(), self.watch.as_fd(), self.monitor.as_fd()];
            let [signal, file, network] = readable(fds, PATIENCE)?;
            let mut events = Vec::new();
            if signal {
                events.extend(self.signals.next()?.map(Event::Signal));
            }
            if file {
                let (name, poker) = table;
                let is_named = self.watch.changed()?.iter().any(|changed| changed == name);
                poker.poke(if is_named { Poke::Changed } else { Poke::Look });
            }
            if network {
                events.push(Event::Network(self.monitor.changes()?));
            }
            for event in events {
                if sender.send(event).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
