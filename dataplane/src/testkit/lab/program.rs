//! A program that runs in a namespace: `dataplane run` or `dataplane redirect`, as an operator starts them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::netns::Namespace;
use crate::host::sys::process::{die_with_parent, reload, report, terminate};

/// How long a program may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running program and what it has printed. Killed when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Program {
    /// Starts `binary` with `arguments` in `namespace`; what it prints goes to files that start with `log`.
    pub fn start(
        namespace: &Namespace,
        binary: PathBuf,
        arguments: &[&str],
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let (output, errors) = (log.with_extension("out"), log.with_extension("err"));
        let runtime = log.parent().map(PathBuf::from).unwrap_or_default();
        let (out, err) = (File::create(&output)?, File::create(&errors)?);
        let child = namespace
            .run(move || {
                let mut command = Command::new(binary);
                // Locks and notes go where the other files of this run are.
                command
                    .args(arguments)
                    .env("RUNTIME_DIRECTORY", runtime)
                    .stdin(Stdio::null())
                    .stdout(out)
                    .stderr(err);
                die_with_parent(&mut command).spawn()
            })
            .with_context(|| format!("in {}", namespace.name()))?;
        Ok(Self { name: namespace.name().to_owned(), child, output, errors })
    }

    /// For messages: its namespace's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until it has said `words` on one of its outputs.
    pub fn wait_for(&mut self, words: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.printed()?.contains(words) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended ({status}): {}", self.name, self.printed()?.trim());
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("{} did not say \"{words}\": {}", self.name, self.printed()?.trim())
    }

    /// Asks for its counters and waits for a line of JSON more.
    pub fn counters(&mut self) -> anyhow::Result<serde_json::Value> {
        let before = self.lines()?.len();
        report(&self.child)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(line) = self.lines()?.get(before) {
                return serde_json::from_str(line).with_context(|| line.clone());
            }
            thread::sleep(Duration::from_millis(2));
        }
        bail!("{} printed no counters", self.name)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to read its configuration again.
    pub fn reload(&self) -> io::Result<()> {
        reload(&self.child)
    }

    /// Asks it to stop, and waits.
    pub fn stop(mut self) -> anyhow::Result<()> {
        terminate(&self.child)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("{} ended ({status}): {}", self.name, self.printed()?.trim()),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
        bail!("{} did not stop", self.name)
    }

    /// Kills it, as a power failure would.
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// All that it has printed.
    pub fn printed(&self) -> io::Result<String> {
        Ok(fs::read_to_string(&self.output)? + &fs::read_to_string(&self.errors)?)
    }

    /// Whole lines on its standard output.
    fn lines(&self) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(&self.output)?;
        Ok(text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already; that is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
