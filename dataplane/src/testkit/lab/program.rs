//! A program that runs in a namespace: `dataplane run` or `dataplane redirect`, started as by an operator.

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

/// Time limit for a program to start or to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running program and its output. Killed when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Program {
    /// Starts `binary` with `arguments` in `namespace`; its output goes to files whose names start with
    /// `log`.
    pub fn start(
        namespace: &Namespace,
        binary: PathBuf,
        arguments: &[&str],
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let (output, errors) = (log.with_extension("out"), log.with_extension("err"));
        let runtime = log.parent().map(PathBuf::from).expect("invariant: a path of a file in a folder");
        let (out, err) = (File::create(&output)?, File::create(&errors)?);
        let child = namespace
            .run(move || {
                let mut command = Command::new(binary);
                // Locks and notes are in the folder of this run's other files.
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

    /// The namespace's name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until one of its outputs contains `words`.
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

    /// Requests its counters and waits for the next line of JSON.
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

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes it read its configuration again.
    pub fn reload(&self) -> io::Result<()> {
        reload(&self.child)
    }

    /// Makes it stop, and waits.
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

    /// Its whole output.
    pub fn printed(&self) -> io::Result<String> {
        Ok(fs::read_to_string(&self.output)? + &fs::read_to_string(&self.errors)?)
    }

    /// Complete lines of its standard output.
    fn lines(&self) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(&self.output)?;
        Ok(text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
