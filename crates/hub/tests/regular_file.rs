//! Tests that only regular files are opened, and that a read ends at its size limit.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_file::{open, open_nofollow, open_to_write, read, read_text};
use rustix::fs::{CWD, FileType, mknodat};

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
