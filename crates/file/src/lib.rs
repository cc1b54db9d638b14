//! Opens regular files only, and reads them up to a size limit.
//!
//! A path from a user, a configuration or another program may name anything. Opening a FIFO waits for its
//! writer, a device may act when it is opened, and `/dev/zero` has no end. Every file whose path is not fixed
//! is opened here.
#![forbid(unsafe_code)]

use std::env;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Opens a regular file for reading, and nothing else.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDONLY)
}

/// The same, but a symbolic link is refused.
pub fn open_nofollow(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDONLY | OFlags::NOFOLLOW)
}

/// Opens a regular file for writing over its bytes; a symbolic link is refused.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::WRONLY | OFlags::NOFOLLOW)
}

/// Reads a regular file of at most `most` bytes.
pub fn read(path: &Path, most: Bytes) -> io::Result<Vec<u8>> {
    read_open(open(path)?, most)
}

/// Reads a regular file of UTF-8 text of at most `most` bytes.
pub fn read_text(path: &Path, most: Bytes) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
    String::from_utf8(read(path, most)?).map_err(not_text)
}

/// Reads an open file from its beginning, of at most `most` bytes.
pub fn read_open(file: File, most: Bytes) -> io::Result<Vec<u8>> {
    let long = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most}"));
    let length = file.metadata()?.len();
    if length > most.get() {
        return Err(long());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).map_err(|_| long())?);
    // One byte more: the file may grow meanwhile, and one of exactly the bound is distinguished from a longer
    // one.
    file.take(most.get().saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= most.get()) { Ok(bytes) } else { Err(long()) }
}

/// A base directory of the user: that of the variable, or else this one in the home directory.
pub fn user_base(variable: &str, in_home: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)))
}

/// The path that a variable holds. The XDG base directory specification says that relative paths are invalid
/// and must be ignored.
pub fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn open_as(path: &Path, flags: OFlags) -> io::Result<File> {
    // Looked at before it is opened, because opening some devices does something.
    let about =
        if flags.contains(OFlags::NOFOLLOW) { fs::symlink_metadata(path)? } else { fs::metadata(path)? };
    check(&about)?;
    // Asked of the descriptor too: the path may name a FIFO by now, for whose writer NONBLOCK does not wait.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(about: &Metadata) -> io::Result<()> {
    match () {
        () if about.is_file() => Ok(()),
        () if about.is_dir() => Err(Errno::ISDIR.into()),
        () => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn a_fifo_a_device_a_socket_and_a_folder_are_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, socket) = (folder.path().join("fifo"), folder.path().join("socket"));
        mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
        let _listens = UnixListener::bind(&socket).unwrap();
        symlink(&fifo, folder.path().join("link")).unwrap();
        let paths = [fifo, socket, folder.path().join("link"), folder.path().to_owned(), "/dev/zero".into()];
        let (done, waits) = channel();
        // On a thread, so that an open that waits fails the test instead of hanging it.
        std::thread::spawn(move || {
            let refused = |path: &std::path::PathBuf| {
                [open(path), open_nofollow(path), open_to_write(path)].iter().all(Result::is_err)
                    && read(path, Bytes::mib(1)).is_err()
            };
            let _ = done.send(paths.iter().all(refused));
        });
        assert_eq!(waits.recv_timeout(Duration::from_secs(10)), Ok(true), "an open waits or succeeds");
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_a_longer_one_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, Bytes::new(4)).unwrap(), b"four");
        let error = read(&path, Bytes::new(3)).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it is longer than 3 B")
        );
        // A hole of a terabyte takes no memory, and no time.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_text(&path, Bytes::mib(1)).unwrap_err().to_string(), "it is longer than 1 MiB");
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, Bytes::mib(1)).unwrap_err().to_string(), "it is not UTF-8");
        // Files of the kernel state no length.
        assert!(read_text(Path::new("/proc/self/status"), Bytes::mib(1)).unwrap().contains("Pid:"));
    }

    #[test]
    fn a_link_is_followed_only_where_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("text"), folder.path().join("link"));
        fs::write(&path, "four").unwrap();
        symlink(&path, &link).unwrap();
        assert!(open(&link).is_ok() && open_nofollow(&link).is_err() && open_to_write(&link).is_err());
        assert!(open_nofollow(&path).is_ok() && open_to_write(&path).is_ok());
        assert_eq!(open(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(open(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
