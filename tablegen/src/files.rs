//! Files that are read. Each has a bound, so that a wrong name costs an error and no memory.
//!
//! Texts and tables may come from a pipe (`<(git show HEAD:web.yaml)`), a secret from a regular file only.

use common::bounded::{self, MAX_SECRET_FILE, MAX_TEXT_FILE};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// A YAML or JSON text, of at most [`MAX_TEXT_FILE`] octets.
pub fn text(file: &Path) -> io::Result<String> {
    let (open, len) = opened(file)?;
    bounded::text(open, len, MAX_TEXT_FILE)
}

/// The same, before it is known to be UTF-8.
pub fn octets(file: &Path) -> io::Result<Vec<u8>> {
    octets_up_to(file, MAX_TEXT_FILE)
}

/// A file of at most `most` octets.
pub fn octets_up_to(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (open, len) = opened(file)?;
    bounded::octets(open, len, most)
}

/// The text of a secret, of at most [`MAX_SECRET_FILE`] octets. Waits for nothing: a pipe without a writer is refused.
pub fn secret(file: &Path) -> io::Result<String> {
    let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(file)?;
    let found = open.metadata()?;
    if !found.is_file() {
        let kind = kind(found.file_type());
        let text = format!("{kind}, and no regular file");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    bounded::text(open, Some(found.len()), MAX_SECRET_FILE)
}

/// A file to be read as a stream, and its length if the system knows it: that of a pipe or a device it does not.
pub fn opened(file: &Path) -> io::Result<(File, Option<u64>)> {
    let open = File::open(file)?;
    let found = open.metadata()?;
    if found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "a folder, and no file"));
    }
    let len = found.is_file().then_some(found.len());
    Ok((open, len))
}

fn kind(kind: std::fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "a special file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn sparse(folder: &Path, len: u64) -> std::path::PathBuf {
        let path = folder.join("sparse");
        File::create(&path).unwrap().set_len(len).unwrap();
        path
    }

    #[test]
    fn texts_are_read_up_to_their_bound() {
        let folder = tempfile::tempdir().unwrap();
        let refused = text(&sparse(folder.path(), (64 << 20) + 1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert!(refused.to_string().starts_with("67108865 octets, at most 67108864 are read"), "{refused}");
        assert_eq!(text(Path::new("/dev/zero")).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(octets(folder.path()).unwrap_err().to_string(), "a folder, and no file");
    }

    /// If it waited for the pipe's writer, this test would not end.
    #[test]
    fn a_secret_is_in_a_regular_file_of_four_kibibytes_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (path, kind) in
            [(pipe.as_path(), "a pipe"), (folder.path(), "a folder"), (Path::new("/dev/zero"), "a device")]
        {
            let refused = secret(path).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{kind}, and no regular file")), "{refused}");
        }
        let refused = secret(&sparse(folder.path(), 4_097)).unwrap_err().to_string();
        assert!(refused.starts_with("4097 octets, at most 4096 are read"), "{refused}");
        assert_eq!(secret(&sparse(folder.path(), 4_096)).unwrap().len(), 4_096);
    }
}
