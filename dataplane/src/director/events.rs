//! What a director reacts to, from the three descriptors by which the kernel tells.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::Sender;

use crate::route::{Changes, Monitor};
use crate::sys::inotify::Watch;
use crate::sys::poll::readable;
use crate::sys::signal::{Signal, Signals};

/// Something happened.
#[derive(Debug)]
pub(crate) enum Event {
    Signal(Signal),
    /// Files in the table's folder were written or replaced.
    Files(Vec<OsString>),
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
    pub(crate) fn watch(mut self, sender: &Sender<Event>, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let fds = [self.signals.as_fd(), self.watch.as_fd(), self.monitor.as_fd()];
            let [signal, file, network] = readable(fds, PATIENCE)?;
            let mut events = Vec::new();
            if signal {
                events.extend(self.signals.next()?.map(Event::Signal));
            }
            if file {
                events.push(Event::Files(self.watch.changed()?));
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
