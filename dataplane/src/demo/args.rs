//! What was typed, and the right to make namespaces.

use anyhow::{Context, anyhow};

use super::story;
use crate::sys::capability::{Capability, missing};
use crate::sys::process::become_root_of_own_namespace;

/// Shows the balancer at work: 300 connections, a drain, a director's death
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Print what was counted as JSON, and no story
    #[arg(long)]
    json: bool,
}

impl DemoArgs {
    /// Plays it.
    ///
    /// # Errors
    /// If the system does not allow namespaces, lacks iproute2, or a connection broke.
    pub fn run(&self) -> anyhow::Result<()> {
        gain_namespaces()?;
        let binary = std::env::current_exe().context("the path of this program")?;
        story::tell(binary, self.json)
    }
}

/// Root has the right; others get it in a user namespace.
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
