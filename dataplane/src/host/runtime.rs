//! The runtime folder, in which programs of one user on one host keep shared notes. A reboot clears it.
//!
//! The first usable folder of this list:
//!
//! 1. `$RUNTIME_DIRECTORY`, which systemd sets for a unit with `RuntimeDirectory=`; if it is set it must be
//!    usable
//! 2. `/run/tryst`, created if permitted
//! 3. `$XDG_RUNTIME_DIR/tryst`
//! 4. `/tmp/tryst-UID`
//!
//! A folder is used only if no other user can have written to it: it belongs to the user of the process (root
//! also accepts a `/run/tryst` that belongs to another user, to share it with programs of that user), it is
//! not a symbolic link, and other users may not write to it. It is kept open, so that the checked folder is
//! the used one.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use common::bounded::{self, MAX_SECRET_FILE};

use crate::host::files;
use crate::host::sys::process::user;

/// A folder that only the program's user can write to.
#[derive(Debug)]
pub(crate) struct RuntimeFolder {
    handle: File,
    path: PathBuf,
    owner: (u32, u32),
}

/// A possible path of the folder.
#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    /// The mode of a new folder, and the most permissions that an existing one may have.
    mode: u32,
}

impl RuntimeFolder {
    /// Opens the first usable folder. Calls `log` if that is not the folder that all programs share.
    pub(crate) fn open(log: impl Fn(std::fmt::Arguments<'_>)) -> anyhow::Result<Self> {
        let candidates = candidates(env::var_os("RUNTIME_DIRECTORY"), env::var_os("XDG_RUNTIME_DIR"));
        let (folder, refused) = first(&candidates);
        let folder = folder.ok_or_else(|| {
            anyhow::anyhow!(
                "no runtime folder for the instance lock: {refused}. Use RuntimeDirectory=tryst in the unit, or \
                 `install -d -o USER -m 0755 /run/tryst`"
            )
        })?;
        if !refused.is_empty() {
            log(format_args!(
                "the runtime folder is {}, which programs of other users do not see: {refused}",
                folder.path.display()
            ));
        }
        Ok(folder)
    }

    fn prepare(candidate: &Candidate) -> io::Result<Self> {
        let Candidate { path, mode } = candidate;
        match DirBuilder::new().mode(*mode).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let handle = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let found = handle.metadata()?;
        let is_shared = mode & 0o077 != 0;
        if found.uid() != user() && !(is_shared && user() == 0) {
            return Err(io::Error::other(format!("it belongs to user {}", found.uid())));
        }
        let others = found.mode() & 0o777 & if is_shared { 0o002 } else { 0o077 };
        if others != 0 {
            return Err(io::Error::other(format!(
                "its mode is {:04o}: others have rights in it",
                found.mode() & 0o7777
            )));
        }
        Ok(Self { handle, path: path.clone(), owner: (found.uid(), found.gid()) })
    }

    /// A path to a file of the checked folder, even if that was moved since.
    fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd())).join(name)
    }

    /// The path of a file, for messages.
    pub(crate) fn shown(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file, or creates it with mode 0600.
    pub(crate) fn open_or_make(&self, name: &str) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut options = OpenOptions::new();
        let options =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let file = options.open(self.file(name))?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // A file that root creates in another user's folder must belong to that user, whose programs open it
        // too.
        if (found.uid(), found.gid()) != self.owner && user() == 0 {
            fchown(&file, Some(self.owner.0), Some(self.owner.1))?;
        }
        Ok(file)
    }

    /// Whether `file` is the file that has this name now.
    pub(crate) fn has(&self, name: &str, file: &File) -> io::Result<bool> {
        let (there, open) = match fs::symlink_metadata(self.file(name)) {
            Ok(there) => (there, file.metadata()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        Ok((there.dev(), there.ino()) == (open.dev(), open.ino()))
    }

    /// Replaces a file as a whole.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let new_name = format!("{name}.new");
        let mut file = self.open_or_make(&new_name)?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        fs::rename(self.file(&new_name), self.file(name))
    }

    /// Reads a short text; `None` if there is no such file.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<String>> {
        match files::opened(&self.file(name), libc::O_NOFOLLOW) {
            Ok((file, found)) => bounded::text(file, Some(found.len()), MAX_SECRET_FILE).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.file(name))
    }
}

fn candidates(given: Option<OsString>, of_user: Option<OsString>) -> Vec<Candidate> {
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        // Several folders are separated by colons (systemd.exec(5)).
        let first = given.as_bytes().split(|octet| *octet == b':').next();
        let first = first.expect("invariant: split gives at least one part");
        return vec![Candidate { path: OsString::from_vec(first.to_vec()).into(), mode: 0o755 }];
    }
    let of_user = of_user.filter(|folder| Path::new(folder).is_absolute());
    let of_user = of_user.map(|folder| Candidate { path: Path::new(&folder).join("tryst"), mode: 0o700 });
    let shared = Candidate { path: "/run/tryst".into(), mode: 0o755 };
    let last = Candidate { path: format!("/tmp/tryst-{}", user()).into(), mode: 0o700 };
    [Some(shared), of_user, Some(last)].into_iter().flatten().collect()
}

/// The first usable folder, and why those before it are not usable.
fn first(candidates: &[Candidate]) -> (Option<RuntimeFolder>, String) {
    let mut refused = Vec::new();
    for candidate in candidates {
        match RuntimeFolder::prepare(candidate) {
            Ok(folder) => return (Some(folder), refused.join("; ")),
            Err(error) => refused.push(format!("{}: {error}", candidate.path.display())),
        }
    }
    (None, refused.join("; "))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    pub(crate) fn folder(path: &Path) -> RuntimeFolder {
        RuntimeFolder::prepare(&Candidate { path: path.to_owned(), mode: 0o755 }).unwrap()
    }

    fn paths(given: Option<&str>, of_user: Option<&str>) -> Vec<String> {
        let candidates = candidates(given.map(Into::into), of_user.map(Into::into));
        candidates.iter().map(|candidate| candidate.path.display().to_string()).collect()
    }

    #[test]
    fn the_units_folder_comes_first_and_temporary_files_last() {
        let last = format!("/tmp/tryst-{}", user());
        assert_eq!(paths(Some("/run/a:/run/b"), Some("/run/user/7")), ["/run/a"]);
        assert_eq!(paths(None, Some("/run/user/7")), ["/run/tryst", "/run/user/7/tryst", &last]);
        assert_eq!(paths(Some(""), Some("user")), ["/run/tryst", &last]);
    }

    /// Folders that another user could have prepared, or can change.
    #[test]
    fn a_folder_that_another_user_could_have_made_or_can_write_to_is_not_used() {
        let own = tempfile::tempdir().unwrap();
        let path = |name: &str| own.path().join(name);
        let prepare = |name: &str, mode| RuntimeFolder::prepare(&Candidate { path: path(name), mode });
        assert_eq!(fs::metadata(prepare("new", 0o700).unwrap().path).unwrap().mode() & 0o777, 0o700);
        for (name, mode, found) in [
            ("open", 0o755, 0o777),
            ("sticky", 0o755, 0o1777),
            ("group", 0o700, 0o770),
            ("read", 0o700, 0o755),
        ] {
            fs::create_dir(path(name)).unwrap();
            fs::set_permissions(path(name), Permissions::from_mode(found)).unwrap();
            let refused = prepare(name, mode).unwrap_err().to_string();
            assert!(refused.contains("others have rights in it"), "{name}: {refused}");
        }
        symlink("new", path("link")).unwrap();
        fs::write(path("file"), "").unwrap();
        for name in ["link", "file", "missing/folder"] {
            assert!(prepare(name, 0o700).is_err(), "{name}");
        }
        fs::create_dir(path("foreign")).unwrap();
        fs::set_permissions(path("foreign"), Permissions::from_mode(0o700)).unwrap();
        // Only root can give folders away.
        if std::os::unix::fs::chown(path("foreign"), Some(65_534), None).is_ok() {
            assert_eq!(prepare("foreign", 0o700).unwrap_err().to_string(), "it belongs to user 65534");
            let shared = prepare("foreign", 0o755).unwrap();
            assert_eq!(shared.open_or_make("lock").unwrap().metadata().unwrap().uid(), 65_534);
        }
        let (found, refused) = first(&[
            Candidate { path: path("open"), mode: 0o755 },
            Candidate { path: path("new"), mode: 0o700 },
        ]);
        assert!(found.is_some() && refused.contains("open: its mode is 0777"), "{refused}");
    }

    #[test]
    fn notes_are_replaced_read_and_removed_and_links_are_not_followed() {
        let own = tempfile::tempdir().unwrap();
        let folder = folder(own.path());
        assert_eq!(folder.read("note").unwrap(), None);
        for text in ["one and more", "two"] {
            folder.write("note", text).unwrap();
            assert_eq!(folder.read("note").unwrap().as_deref(), Some(text));
        }
        assert_eq!(fs::metadata(own.path().join("note")).unwrap().mode() & 0o777, 0o600);
        folder.remove("note").unwrap();
        fs::write(own.path().join("target"), "text").unwrap();
        symlink("target", own.path().join("note")).unwrap();
        assert!(folder.read("note").is_err() && folder.open_or_make("note").is_err());
    }
}
