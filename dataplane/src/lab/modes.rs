//! How programs take frames: what the environment asks for, and what they really do.

use anyhow::ensure;

use super::program::Program;

/// The modes that the environment asks for, in place of the configurations'.
#[derive(Clone, Debug, Default)]
pub(super) struct Modes {
    pub(super) director: Option<String>,
    pub(super) redirect: Option<String>,
}

impl Modes {
    pub(super) fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        Self { director: variable("LAB_DIRECTOR_MODE"), redirect: variable("LAB_REDIRECT_MODE") }
    }

    /// Whether a program in a driver is asked for.
    pub(super) fn native(&self) -> bool {
        [&self.director, &self.redirect].into_iter().any(|mode| mode.as_deref() == Some("xdp"))
    }
}

/// How a program's kernel part is attached now, if it has one.
pub(super) fn attached(program: &mut Program) -> anyhow::Result<Option<String>> {
    Ok(program.counters()?["fast_path"]["attached"].as_str().map(str::to_owned))
}

/// Refuses a program that fell back to another way than the one that `mode` means on a veth.
pub(super) fn check(program: &mut Program, mode: &str) -> anyhow::Result<()> {
    let expected = match mode {
        "xdp" => Some("native"),
        "auto" => Some("generic"),
        _ => None,
    };
    let found = attached(program)?;
    ensure!(
        found.as_deref() == expected,
        "{} was asked for mode {mode} and its XDP is {}: {}",
        program.name(),
        found.as_deref().unwrap_or("off"),
        program.printed()?.trim()
    );
    Ok(())
}
