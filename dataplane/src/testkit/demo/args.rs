//! The command line of the demo, and the privilege to create namespaces.

use std::os::fd::AsFd;
use std::time::Duration;
use std::{process, thread};

use anyhow::{Context, anyhow};

use super::story;
use crate::control::exit::FAILED;
use crate::host::sys::capability::{Capability, missing};
use crate::host::sys::poll;
use crate::host::sys::process::become_root_of_own_namespace;
use crate::host::sys::signal::{Signal, Signals};
use crate::testkit::lab::folder;

/// Show the balancer at work: 300 connections, a drain, a director's death
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Print the counters as JSON instead of the story
    #[arg(long)]
    json: bool,
}

impl DemoArgs {
    /// Runs the demo.
    ///
    /// # Errors
    /// If the system does not allow namespaces or lacks iproute2, or if a connection broke.
    pub fn run(&self) -> anyhow::Result<()> {
        gain_namespaces()?;
        clean_up_when_stopped()?;
        let binary = std::env::current_exe().context("the path of this program")?;
        story::play(binary, self.json)
    }
}

/// Root has the privilege; other users get it in a user namespace.
fn gain_namespaces() -> anyhow::Result<()> {
    if missing(&[Capability::SysAdmin, Capability::NetAdmin, Capability::NetRaw])?.is_empty() {
        return Ok(());
    }
    become_root_of_own_namespace().map_err(|error| {
        anyhow!(
            "this system lets only root make network namespaces ({error}): run the demo as root, or allow user \
             namespaces (user.max_user_namespaces above 0; on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    })
}

/// Removes files when the demo is interrupted. Programs end with this process, and namespaces with both.
fn clean_up_when_stopped() -> anyhow::Result<()> {
    let signals = Signals::block().context("signals")?;
    let wait = move || {
        loop {
            let waited = poll::readable([signals.as_fd()], Duration::from_secs(60));
            let stop = matches!(signals.next(), Ok(Some(Signal::Stop)));
            if stop || waited.is_err() {
                folder::remove_all();
                process::exit(i32::from(FAILED));
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("a thread")?;
    Ok(())
}
