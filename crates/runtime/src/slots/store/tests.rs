use super::*;

const KEY: &str = "0123456789abcdef";

struct Folder {
    store: SlotStore,
    part: PathBuf,
    _folder: tempfile::TempDir,
}

fn folder(bound: u64) -> Folder {
    let folder = tempfile::tempdir().unwrap();
    let store = SlotStore::open(&folder.path().join("a/slots"), Bytes::new(bound)).unwrap();
    let part = store.part("0").unwrap();
    Folder { store, part, _folder: folder }
}

impl Folder {
    fn save(&self, key: &str, content: &[u8]) -> Result<SavedSlot, SlotFileError> {
        let written = self.part.join("save");
        fs::write(&written, content).unwrap();
        self.store.adopt(&written, SavedSlot::new(key, 8000, 12_000, Vec::new()))
    }

    fn state(&self, slot: &SavedSlot) -> PathBuf {
        self.store.paths(&slot.stem()).0
    }

    fn stage(&self, slot: &SavedSlot) -> Result<Vec<u8>, SlotFileError> {
        let into = self.part.join("restore");
        let _ = fs::remove_file(&into);
        self.store.stage(slot, &into).map(|()| fs::read(into).unwrap())
    }

    /// Files and bytes in it.
    fn occupied(&self) -> (usize, u64) {
        let files = fs::read_dir(&self.store.folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        let files: Vec<_> = files.filter(fs::Metadata::is_file).collect();
        (files.len(), files.iter().map(fs::Metadata::len).sum())
    }
}

#[test]
fn a_slot_is_found_again_by_its_model_and_by_no_other_and_only_its_user_can_read_it() {
    let folder = folder(1 << 20);
    let slot = folder.save(KEY, b"state").unwrap();
    assert_eq!((slot.bytes, slot.tokens, slot.prompt()), (5, 8000, Duration::from_secs(12)));
    let (found, refused) = folder.store.list(KEY);
    assert_eq!(found, std::slice::from_ref(&slot));
    assert!(refused.is_empty());
    assert_eq!(folder.stage(&slot).unwrap(), b"state");
    assert!(folder.store.list("another").0.is_empty());
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&folder.store.folder), 0o700);
    for entry in fs::read_dir(&folder.store.folder).unwrap().map(Result::unwrap) {
        let expected = if entry.path().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&entry.path()), expected, "{:?}", entry.path());
    }
}

#[test]
fn the_least_recently_used_leave_for_the_next_and_the_bound_is_kept() {
    let folder = folder(4000);
    let first = folder.save(KEY, &[1; 1000]).unwrap();
    let second = folder.save(KEY, &[2; 1000]).unwrap();
    let old = |slot: &SavedSlot, seconds| {
        let (state, about) = folder.store.paths(&slot.stem());
        for path in [state, about] {
            File::open(path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        }
    };
    old(&first, 20);
    old(&second, 10);
    folder.store.touch(&first);
    let third = folder.save(KEY, &[3; 2000]).unwrap();
    let mut found = folder.store.list(KEY).0;
    found.sort_by_key(|slot| slot.bytes);
    assert_eq!(found, [first, third]);
    for size in 0..8 {
        folder.save(KEY, &vec![size; 400 * usize::from(size)]).unwrap();
        assert!(folder.occupied().1 <= 4000, "{:?}", folder.occupied());
    }
    assert!(matches!(folder.save(KEY, &[4; 4000]), Err(SlotFileError::Size { .. })));
    assert!(folder.occupied().1 <= 4000);
    drop(SlotStore::open(&folder.store.folder, Bytes::ZERO).unwrap());
    assert_eq!(folder.occupied(), (0, 0), "a smaller bound removes files at the start");
}

#[test]
fn a_file_that_is_not_what_was_saved_is_refused() {
    let folder = folder(1 << 20);
    let slot = folder.save(KEY, &[7; 5000]).unwrap();
    let state = folder.state(&slot);
    let check = |what: &str| assert!(folder.stage(&slot).is_err(), "{what}");
    let restore = || {
        let _ = fs::remove_file(&state);
        fs::write(&state, [7; 5000]).unwrap();
        fs::set_permissions(&state, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(folder.stage(&slot).unwrap().len(), 5000);
        let _ = fs::remove_file(folder.part.join("restore"));
    };
    restore();
    let mut damaged = [7; 5000];
    damaged[4321] = 8;
    fs::write(&state, damaged).unwrap();
    assert!(matches!(folder.stage(&slot), Err(SlotFileError::Damaged)));
    for length in [0, 4999, 5001] {
        restore();
        fs::write(&state, vec![7; length]).unwrap();
        assert!(matches!(folder.stage(&slot), Err(SlotFileError::Size { .. })), "{length}");
    }
    restore();
    fs::set_permissions(&state, Permissions::from_mode(0o640)).unwrap();
    check("others could have read it");
    restore();
    let aside = folder.part.join("aside");
    fs::rename(&state, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &state).unwrap();
    check("a link");
    fs::remove_file(&state).unwrap();
    fs::hard_link(&aside, &state).unwrap();
    check("a second name");
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    check("a folder");
    fs::remove_dir(&state).unwrap();
    check("nothing");
    if geteuid().is_root() {
        restore();
        std::os::unix::fs::chown(&state, Some(65534), None).unwrap();
        check("another user's");
    }
}

#[test]
fn a_description_that_is_foreign_or_damaged_is_removed_with_its_file() {
    let spoil = |spoil: &dyn Fn(&Folder, &SavedSlot, &Path)| {
        let folder = folder(1 << 20);
        let slot = folder.save(KEY, b"state").unwrap();
        let about = folder.store.paths(&slot.stem()).1;
        spoil(&folder, &slot, &about);
        let (found, refused) = folder.store.list(KEY);
        assert!(found.is_empty());
        assert_eq!(folder.occupied(), (0, 0), "{refused:?}");
        refused.into_iter().map(|(_, error)| error.to_string()).collect::<Vec<_>>().join(", ")
    };
    for text in ["", "{", "{\"version\":1}", "null", "[[[["] {
        assert!(spoil(&|_, _, about| fs::write(about, text).unwrap()).contains("description"), "{text}");
    }
    let other = spoil(&|_, slot, about| {
        let other = SavedSlot { key: "another".to_owned(), ..slot.clone() };
        fs::write(about, serde_json::to_vec(&other).unwrap()).unwrap();
    });
    assert!(other.contains("another model"), "{other}");
    let renamed = spoil(&|folder, slot, about| {
        let stem = format!("{KEY}-ffffffffffffffff");
        let (state, to) = folder.store.paths(&stem);
        fs::rename(folder.state(slot), state).unwrap();
        fs::rename(about, to).unwrap();
    });
    assert!(renamed.contains("another model"), "{renamed}");
    let later = spoil(&|_, slot, about| {
        fs::write(about, serde_json::to_vec(&SavedSlot { version: 2, ..slot.clone() }).unwrap()).unwrap();
    });
    assert!(later.contains("description"), "{later}");
    let long = spoil(&|_, _, about| fs::write(about, vec![b' '; 1 << 20]).unwrap());
    assert!(long.contains("description"), "{long}");
}

#[test]
fn slot_files_not_written_by_the_engine_are_not_adopted() {
    let folder = folder(1 << 20);
    let written = folder.part.join("save");
    let slot = || SavedSlot::new(KEY, 1, 1, Vec::new());
    assert!(matches!(folder.store.adopt(&written, slot()), Err(SlotFileError::Read(_))));
    std::os::unix::fs::symlink("/etc/hostname", &written).unwrap();
    assert!(matches!(folder.store.adopt(&written, slot()), Err(SlotFileError::Foreign)));
    assert_eq!(folder.occupied(), (0, 0));
}

#[test]
fn a_folder_that_is_anothers_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    assert!(SlotStore::open(&link, Bytes::gib(1)).is_err());
    if geteuid().is_root() {
        std::os::unix::fs::chown(&real, Some(65534), None).unwrap();
        assert!(SlotStore::open(&real, Bytes::gib(1)).is_err());
    }
    fs::write(folder.path().join("file"), "x").unwrap();
    assert!(SlotStore::open(&folder.path().join("file"), Bytes::gib(1)).is_err());
}
