//! How programs receive frames and how clients send them: the modes that the environment requests, and the
//! actual modes.

use anyhow::ensure;

use super::program::Program;

/// Overrides of the configurations' modes, and of the kernel's default for clients.
#[derive(Clone, Debug, Default)]
pub struct Modes {
    /// `mode` of every director.
    pub director: Option<String>,
    /// `mode` of every redirector.
    pub redirect: Option<String>,
    /// Whether clients' kernels finish transport checksums, as in frames from a wire. By default they leave
    /// them to the interface, and a veth leaves them unfinished.
    pub finished_checksums: bool,
}

impl Modes {
    /// Reads `LAB_DIRECTOR_MODE`, `LAB_REDIRECT_MODE` and `LAB_CHECKSUMS` (`finished`, or anything else).
    pub fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        Self {
            director: variable("LAB_DIRECTOR_MODE"),
            redirect: variable("LAB_REDIRECT_MODE"),
            finished_checksums: variable("LAB_CHECKSUMS").as_deref() == Some("finished"),
        }
    }

    /// Whether a program in a driver is requested.
    pub(super) fn native(&self) -> bool {
        [&self.director, &self.redirect].into_iter().any(|mode| mode.as_deref() == Some("xdp"))
    }
}

/// How a program's kernel part is attached now, if it has one.
pub(super) fn attached(program: &mut Program) -> anyhow::Result<Option<String>> {
    Ok(program.counters()?["fast_path"]["attached"].as_str().map(str::to_owned))
}

/// Fails if a program uses another mode than `mode` means on a veth.
pub(super) fn check(program: &mut Program, mode: &str) -> anyhow::Result<()> {
    let expected = match mode {
        "xdp" => Some("native"),
        "auto" => Some("generic"),
        _ => None,
    };
    let found = attached(program)?;
    ensure!(
        found.as_deref() == expected,
        "{} was started with mode {mode}, but its XDP is {}: {}",
        program.name(),
        found.as_deref().unwrap_or("off"),
        program.printed()?.trim()
    );
    Ok(())
}
