//! The events that a director reacts to, read from signals, inotify and netlink.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::Sender;

use super::table_file::{ReadReason, Waker};
use crate::control::config::{Config, ConfigError};
use crate::control::table::{LoadError, LoadedTable};
use crate::host::route::{Changes, Monitor};
use crate::host::sys::inotify::Watch;
use crate::host::sys::poll::readable;
use crate::host::sys::signal::{Signal, Signals};

/// An event for the control loop.
#[derive(Debug)]
pub(crate) enum Event {
    Signal(Signal),
    /// The configuration, read again.
    Config(Result<Config, ConfigError>),
    /// The table's file, read again.
    Table(Result<LoadedTable, LoadError>),
    /// Links, routes or neighbours changed.
    Network(Changes),
    /// A thread failed.
    Failed(&'static str, io::Error),
}

/// The descriptors that events are read from.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) signals: Signals,
    pub(crate) watch: Watch,
    pub(crate) monitor: Monitor,
}

/// Interval at which the thread checks whether it should stop.
const PATIENCE: Duration = Duration::from_millis(100);

impl Sources {
    /// Sends events to the control loop until `stop`. Ends early if the receiver is gone.
    pub(crate) fn watch(
        mut self,
        sender: &Sender<Event>,
        table: (&OsStr, &Waker),
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
                let (name, waker) = table;
                let is_named = self.watch.changed()?.iter().any(|changed| changed == name);
                waker.wake(if is_named { ReadReason::Changed } else { ReadReason::Look });
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
