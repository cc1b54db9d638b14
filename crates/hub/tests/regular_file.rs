//! Tests that only regular files are opened, and that a read ends at its size limit.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_file::{FileUsers, Replacement, open, open_nofollow, open_to_write, read, read_text};
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

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_file_is_replaced_whole_with_the_users_it_is_given_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    fs::write(path("like"), "").unwrap();
    fs::set_permissions(path("like"), Permissions::from_mode(0o640)).unwrap();
    let like = fs::metadata(path("like")).unwrap();
    let of_another = Replacement { users: FileUsers::Of(&like), sync: true };
    for (name, how, expected) in [("own", Replacement::OWN, 0o600), ("as", of_another, 0o640)] {
        for text in ["long before", "after"] {
            plimsoll_file::replace(&path(name), text.as_bytes(), how).unwrap();
            assert_eq!((fs::read_to_string(path(name)).unwrap().as_str(), mode(name)), (text, expected));
        }
    }
    // The longest name that a file can have, and a link, behind which nothing changes.
    let long = "n".repeat(255);
    symlink(path("like"), path(&long)).unwrap();
    plimsoll_file::replace(&path(&long), b"text", Replacement::USUAL).unwrap();
    assert!(fs::symlink_metadata(path(&long)).unwrap().is_file());
    assert_eq!(fs::read(path("like")).unwrap(), b"");
    assert_eq!(names(folder.path()), ["as", "like", &long, "own"]);
}

#[test]
fn a_file_that_cannot_be_replaced_stays_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("full");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("inner"), "kept").unwrap();
    plimsoll_file::replace(&place, b"text", Replacement::OWN).unwrap_err();
    plimsoll_file::replace(&folder.path().join("none/file"), b"text", Replacement::OWN).unwrap_err();
    assert_eq!((names(folder.path()), names(&place)), (vec!["full".to_owned()], vec!["inner".to_owned()]));
}
