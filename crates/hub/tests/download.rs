//! Tests of downloads from a fake hub: success, resumption, damage, and faults of the server or the folder.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fake_hub::{COMMIT, FakeHub, Fault, HostedFile};
use plimsoll_base::Bytes;
use plimsoll_hub::{Address, Bounds, Caches, Client, DownloadedModel, Hub, HubFailure};
use plimsoll_model::Dialect;

const REPO: &str = "user/model-GGUF";
const NAME: &str = "user/model-GGUF:Q8_0";
const FILE: &str = "Q8/model-Q8_0.gguf";
/// Bytes of a request.
const PART: u64 = 8 << 20;

fn hub(server: &FakeHub) -> Hub {
    let bounds = Bounds { patience: Duration::from_secs(20), header: Bytes::mib(32), public_only: false };
    Hub::new(Client::new(Address::parse(&server.address).unwrap(), None, bounds).unwrap(), Caches::default())
}

/// A model of two and a half parts.
fn content() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    plimsoll_specimens::write("tiny", &path, &plimsoll_specimens::Changes::default()).unwrap();
    let mut bytes = fs::read(path).unwrap();
    bytes.resize(usize::try_from(PART * 5 / 2).unwrap(), 7);
    bytes
}

fn serving(bytes: &[u8]) -> FakeHub {
    FakeHub::start(vec![(REPO, FILE, HostedFile::whole(bytes))]).unwrap()
}

fn download(server: &FakeHub, folder: &Path, goes_on: impl Fn(u64) -> bool) -> Result<(), HubFailure> {
    let hub = hub(server);
    let plan = hub.plan_download(NAME, Dialect::Ggml).map_err(|error| error.failure)?;
    hub.download(&plan, folder, &|progress| goes_on(progress.done)).map_err(|error| error.failure)
}

fn part_file(folder: &Path) -> PathBuf {
    let blobs = folder.join("models--user--model-GGUF/blobs");
    let mut parts = fs::read_dir(blobs).unwrap().map(|entry| entry.unwrap().path());
    parts.find(|path| path.extension().is_some_and(|end| end == "part")).unwrap()
}

#[test]
fn a_model_arrives_where_an_engine_and_a_list_find_it_and_goes_again() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    let server = serving(&bytes);
    let reported = RefCell::new(Vec::new());
    download(&server, folder.path(), |done| {
        reported.borrow_mut().push(done);
        true
    })
    .unwrap();
    assert_eq!(reported.into_inner(), [0, PART, 2 * PART, PART * 5 / 2]);
    let path = folder.path().join("models--user--model-GGUF/snapshots").join(COMMIT).join(FILE);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let models = DownloadedModel::all(folder.path());
    assert_eq!((models.len(), models[0].name.as_str()), (1, NAME));
    assert_eq!(folder.path().join(&models[0].files[0]), path);
    // What is there is not fetched again.
    let (before, _) = server.requested();
    download(&server, folder.path(), |_| true).unwrap();
    assert!(server.requested().0 - before < PART, "a header, and no file");
    models[0].remove(folder.path()).unwrap();
    assert!(DownloadedModel::all(folder.path()).is_empty() && fs::symlink_metadata(&path).is_err());
    assert_eq!(fs::read_dir(folder.path().join("models--user--model-GGUF/blobs")).unwrap().count(), 0);
}

#[test]
fn partial_download_is_kept_and_resumed() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    let server = serving(&bytes);
    let cancelled = download(&server, folder.path(), |done| done < PART);
    assert!(matches!(cancelled, Err(HubFailure::Cancelled)), "{cancelled:?}");
    assert_eq!(fs::metadata(part_file(folder.path())).unwrap().len(), PART);
    assert!(DownloadedModel::all(folder.path()).is_empty(), "half a model is none");
    let seen = server.requests().len();
    download(&server, folder.path(), |_| true).unwrap();
    let ranges = server.requests()[seen..].iter().filter_map(|request| request.range).collect::<Vec<_>>();
    // Headers are read from the beginning of the file, in pieces of 64 KiB.
    let first = ranges.iter().find(|(from, to)| to - from >= PART / 2 - 1).unwrap();
    assert_eq!(first.0, PART, "{ranges:?}");
}

#[test]
fn a_file_with_another_digest_is_removed_and_comes_whole_the_next_time() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    let server = serving(&bytes);
    download(&server, folder.path(), |done| done < PART).unwrap_err();
    let part = part_file(folder.path());
    let mut damaged = fs::read(&part).unwrap();
    damaged[99] ^= 1;
    fs::write(&part, damaged).unwrap();
    let error = download(&server, folder.path(), |_| true).unwrap_err();
    assert!(matches!(error, HubFailure::Digest { .. }), "{error}");
    assert!(!part.exists() && DownloadedModel::all(folder.path()).is_empty());
    download(&server, folder.path(), |_| true).unwrap();
    // A part that is longer than the file is none of it.
    DownloadedModel::all(folder.path())[0].remove(folder.path()).unwrap();
    fs::write(&part, vec![0; bytes.len() + 1]).unwrap();
    download(&server, folder.path(), |_| true).unwrap();
}

#[test]
fn two_downloads_of_one_file_and_a_full_disk_are_refused() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    let server = serving(&bytes);
    download(&server, folder.path(), |done| done < PART).unwrap_err();
    let other = fs::File::open(part_file(folder.path())).unwrap();
    other.lock().unwrap();
    let error = download(&server, folder.path(), |_| true).unwrap_err();
    assert!(matches!(error, HubFailure::Busy), "{error}");
    drop(other);
    let huge = HostedFile { length: 1 << 50, ..HostedFile::whole(&bytes) };
    let server = FakeHub::start(vec![(REPO, FILE, huge)]).unwrap();
    let error = download(&server, folder.path(), |_| true).unwrap_err();
    assert!(matches!(error, HubFailure::NoSpace { .. }), "{error}");
    let error = download(&serving(&bytes), Path::new("/proc/none"), |_| true).unwrap_err();
    assert!(matches!(error, HubFailure::Disk(_)), "{error}");
}

#[test]
fn every_fault_of_a_server_ends_a_download_with_an_error_and_nothing_that_looks_like_a_model() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    for fault in [
        Fault::Status(404),
        Fault::Status(429),
        Fault::Loop,
        Fault::BadRedirect,
        Fault::IgnoresRanges,
        Fault::Truncates,
        Fault::Hangs,
        Fault::Length(5),
        Fault::OtherRange,
        Fault::Noise,
        Fault::Gated,
    ] {
        let file = HostedFile::whole(&bytes).with(fault);
        let server = FakeHub::start(vec![(REPO, FILE, file)]).unwrap();
        assert!(download(&server, folder.path(), |_| true).is_err(), "{fault:?}");
    }
    let no_digest = HostedFile { digest: Some("none".to_owned()), ..HostedFile::whole(&bytes) };
    let server = FakeHub::start(vec![(REPO, FILE, no_digest)]).unwrap();
    let error = download(&server, folder.path(), |_| true).unwrap_err();
    assert!(matches!(error, HubFailure::NoDigest), "{error}");
    let no_model = FakeHub::start(vec![(REPO, FILE, HostedFile::whole(&[b'x'; 4096]))]).unwrap();
    assert!(matches!(download(&no_model, folder.path(), |_| true), Err(HubFailure::Header(_))));
    assert!(DownloadedModel::all(folder.path()).is_empty());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is as it was");
    let server = serving(&bytes);
    let long = format!("{REPO}:{}", "x".repeat(65));
    for name in [
        "",
        "u",
        "../..",
        "../..:Q8_0",
        "user/model-GGUF:",
        "user/model-GGUF:../x",
        "u/r:a b",
        "u/r:a\nb",
        &long,
    ] {
        let error = hub(&server).plan_download(name, Dialect::Ggml).unwrap_err();
        assert!(matches!(error.failure, HubFailure::NoRepository), "{name}: {error}");
    }
}

fn download_from(address: &str, folder: &Path, goes_on: impl Fn(u64) -> bool) -> Result<(), HubFailure> {
    let server = FakeHub::start(Vec::new()).unwrap();
    let hub = hub(&server);
    let plan = hub.plan_download(address, Dialect::Ggml).map_err(|error| error.failure)?;
    hub.download(&plan, folder, &|progress| goes_on(progress.done)).map_err(|error| error.failure)
}

#[test]
fn a_model_comes_from_a_plain_address_in_parts_and_goes_on_where_it_was() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    let server = serving(&bytes);
    let address = server.plain(REPO, FILE) + "?download=true";
    let cancelled = download_from(&address, folder.path(), |done| done < PART);
    assert!(matches!(cancelled, Err(HubFailure::Cancelled)), "{cancelled:?}");
    let seen = server.requests().len();
    download_from(&address, folder.path(), |_| true).unwrap();
    let ranges = server.requests()[seen..].iter().filter_map(|request| request.range).collect::<Vec<_>>();
    assert!(ranges.iter().all(|(from, to)| *from >= PART || to - from < PART / 2), "{ranges:?}");
    let models = DownloadedModel::all(folder.path());
    assert_eq!((models.len(), models[0].name.as_str()), (1, "model-Q8_0"));
    let path = folder.path().join(&models[0].files[0]);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    models[0].remove(folder.path()).unwrap();
    assert!(fs::symlink_metadata(&path).is_err());
    assert_eq!(fs::read_dir(folder.path().join("addresses/blobs")).unwrap().count(), 0);
}

#[test]
fn an_address_of_the_hub_states_a_digest_which_is_checked() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    let server = serving(&bytes);
    let address = format!("{}/{REPO}/resolve/{COMMIT}/{FILE}", server.address);
    download_from(&address, folder.path(), |_| true).unwrap();
    let wrong = HostedFile { digest: Some("ab".repeat(32)), ..HostedFile::whole(&bytes) };
    let server = FakeHub::start(vec![(REPO, FILE, wrong)]).unwrap();
    let address = format!("{}/{REPO}/resolve/{COMMIT}/{FILE}", server.address);
    let error = download_from(&address, tempfile::tempdir().unwrap().path(), |_| true).unwrap_err();
    assert!(matches!(error, HubFailure::Digest { .. }), "{error}");
}

#[test]
fn an_address_that_changes_fails_or_holds_no_model_leaves_none() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    for fault in [
        Fault::Status(404),
        Fault::Status(500),
        Fault::IgnoresRanges,
        Fault::Truncates,
        Fault::Hangs,
        Fault::Length(5),
        Fault::OtherRange,
        Fault::Noise,
        Fault::Changes,
    ] {
        let server = FakeHub::start(vec![(REPO, FILE, HostedFile::whole(&bytes).with(fault))]).unwrap();
        let failed = download_from(&server.plain(REPO, FILE), folder.path(), |_| true);
        assert!(failed.is_err(), "{fault:?}");
    }
    let server = FakeHub::start(vec![(REPO, "m.gguf", HostedFile::whole(&[b'x'; 4096]))]).unwrap();
    let failed = download_from(&server.plain(REPO, "m.gguf"), folder.path(), |_| true);
    assert!(matches!(failed, Err(HubFailure::Header(_))), "{failed:?}");
    for address in ["https://", "http:///m.gguf", "http://127.0.0.1:1/m.bin", "http://u:p@127.0.0.1:1/m.gguf"]
    {
        let failed = download_from(address, folder.path(), |_| true);
        assert!(matches!(failed, Err(HubFailure::NoAddress)), "{address}: {failed:?}");
    }
    assert!(DownloadedModel::all(folder.path()).is_empty());
}

/// A file that is written anew between two answers is told by nothing where the server states no ETag.
#[test]
fn a_file_without_a_validator_is_never_made_of_two() {
    let (bytes, folder) = (content(), tempfile::tempdir().unwrap());
    let file = HostedFile::whole(&bytes).with(Fault::Untagged);
    let server = FakeHub::start(vec![(REPO, FILE, file)]).unwrap();
    let address = server.plain(REPO, FILE);
    let arrived = || {
        let model = &DownloadedModel::all(folder.path())[0];
        fs::read(folder.path().join(&model.files[0])).unwrap()
    };
    download_from(&address, folder.path(), |_| true).unwrap();
    let first = arrived();
    assert!(first.len() == bytes.len() && first[1 << 20..].iter().all(|byte| *byte == first[1 << 20]));
    // What has come of it is not continued, and what is there is not taken for the same.
    let cancelled = download_from(&address, folder.path(), |done| done < PART);
    assert!(matches!(cancelled, Err(HubFailure::Cancelled)), "{cancelled:?}");
    download_from(&address, folder.path(), |_| true).unwrap();
    let second = arrived();
    assert!(second[1 << 20..].iter().all(|byte| *byte == second[1 << 20]) && second != first);
}

#[test]
fn a_note_that_leads_elsewhere_is_no_model_and_a_shared_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("plimsoll");
    fs::create_dir(&notes).unwrap();
    fs::write(folder.path().join("a.gguf"), "a").unwrap();
    let note = |file: &str, name: &str, files: &str| {
        let text = format!("{{\"name\":\"{name}\",\"files\":[{files}],\"projector\":null}}");
        fs::write(notes.join(format!("{file}.json")), text).unwrap();
    };
    note("x1", "x1", "\"/etc/passwd\"");
    note("x2", "x2", "\"../a.gguf\"");
    note("x3", "x3", "");
    note("x4", "other", "\"a.gguf\"");
    note("x5", "x5", "\"missing.gguf\"");
    fs::write(notes.join("x6.json"), [0xff; 100]).unwrap();
    assert_eq!(DownloadedModel::all(folder.path()), []);
    note("a1", "a1", "\"a.gguf\"");
    note("a2", "a2", "\"a.gguf\"");
    let [first, second] = &DownloadedModel::all(folder.path())[..] else { panic!() };
    first.remove(folder.path()).unwrap();
    assert!(folder.path().join("a.gguf").exists());
    second.remove(folder.path()).unwrap();
    assert!(!folder.path().join("a.gguf").exists());
    assert!(second.remove(folder.path()).is_err(), "it is gone");
}
